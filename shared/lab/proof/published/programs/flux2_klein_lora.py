"""LoRA of FLUX.2 Klein 4B, pictures of 512 pixels, as PEFT compares its methods.

Source: https://github.com/huggingface/peft/tree/main/method_comparison/image-gen, one L40S. Prompts
and pictures are encoded before training, so text encoder and decoder wait on the host. On the GPU
stay the transformer in bf16, the adapters in fp32, the encoded prompts of 14 pictures, and DINOv2,
which scores pictures later. Weights are random; the model's shape is that of its configuration.
Reading: what is reserved after an update, at most, and what is allocated after the last one. --all
trains all weights, without LoRA; --no-checkpoints leaves out checkpointing, --8-bit keeps
Adam's states in 8 bits.
"""

import sys

import torch
from diffusers import Flux2Transformer2DModel
from peft import LoraConfig, get_peft_model
from transformers import Dinov2Config, Dinov2Model

PICTURES, BATCH = 14, 2
TEXT, WIDTH = 512, 3 * 2560  # tokens; three layers of the text encoder
EDGE, CHANNELS = 512 // 16, 128  # of encoded pictures
UPDATES, EMPTIED = 30, 25  # the cache is emptied after every 25 updates
ADAPTED = "to_q to_k to_v to_out.0 add_q_proj add_k_proj add_v_proj to_add_out to_qkv_mlp_proj"

dino = Dinov2Model(Dinov2Config()).cuda().eval()
shape = dict(num_layers=5, num_single_layers=20, num_attention_heads=24, attention_head_dim=128)
shape |= dict(in_channels=CHANNELS, joint_attention_dim=WIDTH, guidance_embeds=False)
with torch.device("meta"):
    transformer = Flux2Transformer2DModel(**shape).bfloat16()
transformer.to_empty(device="cpu")
if "--no-checkpoints" not in sys.argv:
    transformer.enable_gradient_checkpointing()
if "--all" not in sys.argv:
    adapted = [*ADAPTED.split(), "linear_in", "linear_out"]
    transformer = get_peft_model(
        transformer, LoraConfig(r=32, lora_alpha=32, target_modules=adapted)
    )
transformer.train().cuda()
sizes = [p.numel() for p in transformer.parameters() if p.requires_grad]
print(f"{sum(sizes):,} of {sum(p.numel() for p in transformer.parameters()):,} weights learn")
optimizer_class = torch.optim.AdamW
if "--8-bit" in sys.argv:
    from bitsandbytes.optim import AdamW8bit as optimizer_class
optimizer = optimizer_class(transformer.parameters(), lr=1e-4, weight_decay=1e-4)

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
print(f"figure reserved: {max(reserved)} bytes")
print(f"figure allocated: {allocated} bytes")
