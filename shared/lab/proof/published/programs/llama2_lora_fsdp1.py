"""Llama-2-7B with LoRA under FSDP1 on 4 GPUs, all in bf16, as in llama-recipes of July 2023.

Report: https://github.com/meta-llama/llama-cookbook/pull/41 (July 2023, 4 A100 with 40 GB). GiB are
assumed. Peaks, active and reserved: 25.86 and 32.67 with all-gathers as far ahead as the host runs
("ahead"), 20.20 and 27.36 with the limiter ("limited"), 15.22 and 19.36 if the logits are not kept
until the end of the backward pass, either ("loss").
By the defaults there: 4 texts of 2,048 tokens, blocks checkpointed, trainable leaves in units of
their own, AdamW, and the keys and values of all blocks are returned.
Run with --devices 4 --alone --host 41.5.
"""

import functools
import sys

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as ac
from torch.distributed.fsdp import FullyShardedDataParallel, wrap
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

what = sys.argv[1]
torch.cuda.set_device(0)
dist.init_process_group("nccl")
torch.nn.init.kaiming_uniform_ = torch.nn.init.normal_ = lambda tensor, *_, **__: tensor
torch.set_default_dtype(torch.bfloat16)
model = LlamaForCausalLM(LlamaConfig()).train()
lora = LoraConfig(r=8, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "v_proj"])
model = get_peft_model(model, lora).to(torch.bfloat16)
torch.set_default_dtype(torch.float32)
is_trained = functools.partial(
    wrap.lambda_auto_wrap_policy,
    lambda_fn=lambda m: not [*m.children()] and getattr(m, "weight", None) is not None
    and m.weight.requires_grad,
)  # fmt: skip
is_block = functools.partial(
    wrap.transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}
)
model = FullyShardedDataParallel(
    model,
    auto_wrap_policy=functools.partial(wrap._or_policy, policies=[is_trained, is_block]),
    device_id=torch.cuda.current_device(),
    limit_all_gathers=what != "ahead",
)
ac.apply_activation_checkpointing(
    model,
    checkpoint_wrapper_fn=functools.partial(
        ac.checkpoint_wrapper, checkpoint_impl=ac.CheckpointImpl.NO_REENTRANT
    ),
    check_fn=lambda m: isinstance(m, LlamaDecoderLayer),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.cuda.reset_peak_memory_stats()
for _ in range(4):
    batch = {
        name: torch.ones(4, 2048, dtype=torch.int64).cuda() for name in ("input_ids", "labels")
    }
    batch["attention_mask"] = torch.ones(4, 2048, dtype=torch.int64).cuda()
    if what == "loss":
        loss = model(**batch).loss
    else:
        outputs = model(**batch)
        loss = outputs.loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
stats = torch.cuda.memory_stats()
print("figure active:", stats["active_bytes.all.peak"] / 2**30, "GiB")
print("figure reserved:", stats["reserved_bytes.all.peak"] / 2**30, "GiB")
