"""LoRA of FLUX.2 Klein 4B, pictures of 512 pixels, as PEFT compares its methods.

Prompts and pictures are encoded before training, so text encoder and decoder wait on the host. On
the GPU stay the transformer in bf16, the adapters in fp32, the encoded prompts of 14 pictures, and
DINOv2, which scores pictures later. Weights are random, of the shape of the model's configuration.
"""

import torch

PICTURES, BATCH = 14, 2
TEXT, WIDTH = 512, 3 * 2560  # tokens; three layers of the text encoder
EDGE, CHANNELS = 512 // 16, 128  # of encoded pictures
UPDATES, EMPTIED = 30, 25  # the cache is emptied after every 25 updates
ADAPTED = "to_q to_k to_v to_out.0 add_q_proj add_k_proj add_v_proj to_add_out to_qkv_mlp_proj"
SHAPE = {
    "num_layers": 5,
    "num_single_layers": 20,
    "num_attention_heads": 24,
    "attention_head_dim": 128,
    "in_channels": CHANNELS,
    "joint_attention_dim": WIDTH,
    "guidance_embeds": False,
}


def make(lora, checkpoints, low_bit):
    """Return the transformer, and its optimizer."""
    from diffusers import Flux2Transformer2DModel
    from peft import LoraConfig, get_peft_model

    with torch.device("meta"):
        transformer = Flux2Transformer2DModel(**SHAPE).bfloat16()
    transformer.to_empty(device="cpu")
    if checkpoints:
        transformer.enable_gradient_checkpointing()
    if lora:
        adapted = [*ADAPTED.split(), "linear_in", "linear_out"]
        config = LoraConfig(r=32, lora_alpha=32, target_modules=adapted)
        transformer = get_peft_model(transformer, config)
    transformer.train().cuda()
    optimizer_class = torch.optim.AdamW
    if low_bit:
        from bitsandbytes.optim import AdamW8bit as optimizer_class
    return transformer, optimizer_class(transformer.parameters(), lr=1e-4, weight_decay=1e-4)


def train(lora=True, checkpoints=True, low_bit=False):
    """Train with LoRA, or all weights; return the most that is reserved after an update.

    Also return what is allocated after the last one. With `low_bit`, Adam's states have 8 bits.
    """
    from transformers import Dinov2Config, Dinov2Model

    dino = Dinov2Model(Dinov2Config()).cuda().eval()  # noqa: F841, it stays on the GPU
    transformer, optimizer = make(lora, checkpoints, low_bit)
    prompts = torch.zeros(PICTURES, TEXT, WIDTH, dtype=torch.bfloat16, device="cuda")
    text_ids = torch.zeros(PICTURES, TEXT, 4, dtype=torch.int64, device="cuda")
    latents = torch.zeros(PICTURES, CHANNELS, EDGE, EDGE, dtype=torch.bfloat16, device="cuda")
    order = torch.arange(UPDATES * BATCH).cuda() % PICTURES
    losses, reserved = [], []
    for step in range(1, UPDATES + 1):
        chosen = order[(step - 1) * BATCH : step * BATCH]
        images, texts, ids = (x.index_select(0, chosen) for x in (latents, prompts, text_ids))
        image_ids = torch.zeros(BATCH, EDGE * EDGE, 4, dtype=torch.int64).cuda()
        noise = torch.randn_like(images)
        sigmas = torch.rand(BATCH, 1, 1, 1).to("cuda", torch.bfloat16)
        noisy = (1.0 - sigmas) * images + sigmas * noise
        packed = noisy.flatten(2).permute(0, 2, 1)
        optimizer.zero_grad(set_to_none=True)
        predicted = transformer(
            hidden_states=packed,
            timestep=sigmas.flatten(),
            guidance=None,
            encoder_hidden_states=texts,
            txt_ids=ids,
            img_ids=image_ids,
            return_dict=False,
        )[0]
        predicted = predicted[:, : packed.size(1)].permute(0, 2, 1).reshape(images.shape)
        difference = predicted.float() - (noise - images).float()
        loss = (torch.ones_like(sigmas).float() * difference**2).reshape(BATCH, -1).mean(1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(transformer.parameters(), 1.0)
        optimizer.step()
        losses.append(loss)
        loss.item()
        allocated = torch.cuda.memory_allocated()
        reserved.append(torch.cuda.memory_reserved())
        if step % EMPTIED == 0:
            torch.cuda.empty_cache()
    return {"reserved": max(reserved), "allocated": allocated}
