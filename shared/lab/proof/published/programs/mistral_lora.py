"""LoRA and QLoRA of Mistral-7B with checkpoints around every layer.

Report: https://github.com/foundation-model-stack/fms-acceleration/pull/14 (May 2024, one A100 with
80 GB), "peak torch mem alloc" in GiB, batch 4 per GPU: lora 26.11, with bitsandbytes' 4 bits
(accelerated-peft-bnb) 15.86. Its scenarios: rank 16 on q, k, v, o, dropout 0.1, fp16, AdamW,
gradient checkpointing, flash attention. The texts are packed; 4,096 tokens are assumed, the
default of its benchmark then. Weights are random, from the model's configuration.
Reading: peak of allocated memory. --quantized for the second.
"""

import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import MistralConfig, MistralForCausalLM

quantized = "--quantized" in sys.argv
config = MistralConfig(sliding_window=None)
config._attn_implementation = "sdpa"
with torch.device("meta"):
    model = MistralForCausalLM(config).half()
model.to_empty(device="cpu")
if quantized:
    import bitsandbytes as bnb

    kind = dict(bias=False, compute_dtype=torch.float16, quant_type="nf4", compress_statistics=True)
    for name, old in list(model.named_modules()):
        if isinstance(old, torch.nn.Linear) and name != "lm_head":
            new = bnb.nn.Linear4bit(old.in_features, old.out_features, **kind)
            new.weight = bnb.nn.Params4bit(
                old.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True
            )
            model.set_submodule(name, new)
model.cuda()
lora = LoraConfig(r=16, lora_alpha=16, lora_dropout=0.1, task_type="CAUSAL_LM")
lora.target_modules = {"q_proj", "k_proj", "v_proj", "o_proj"}
model = get_peft_model(model, lora)
model.gradient_checkpointing_enable({"use_reentrant": True})
model.enable_input_require_grads()
model.train()
print("after loading", torch.cuda.memory_allocated() / 2**30, "GiB")
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    text = torch.randint(0, 32_000, (4, 4096)).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(input_ids=text, use_cache=False).logits.float()
        shifted = logits[:, :-1].contiguous()  # so did transformers in 2024
        loss = torch.nn.functional.cross_entropy(shifted.view(-1, 32_000), text[:, 1:].flatten())
        del logits, shifted
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print("figure:", torch.cuda.max_memory_allocated() / 2**30, "GiB")
