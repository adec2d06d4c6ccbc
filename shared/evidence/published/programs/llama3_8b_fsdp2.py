"""Llama-3.1-8B under FSDP2 (fully_shard) with selective activation checkpointing, in torchtitan.

Report: https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md
(December 2024, PyTorch 1963fc8, H100 with 96 GB): FSDP without torch.compile, batch 2 per GPU,
8,192 tokens. GiB on each of 8 GPUs (table 1): 82.4; on each of 128 (table 3): 67.0.
torchtitan prints the peak of reserved memory, and its start script sets expandable segments.
Of each block, the products of every second matrix and attention's result are kept. The model is
transformers'. Reading: peak of reserved memory. Run with --devices 8 --alone (or 128).
"""

import collections
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrap  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils import checkpoint as ac  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

mm = torch.ops.aten.mm.default
kept = {mm, torch.ops.aten._scaled_dot_product_flash_attention.default}


def contexts():
    products = collections.Counter()

    def policy(context, op, *args, **kwargs):
        products[context.is_recompute] += op == mm
        second = op == mm and products[context.is_recompute] % 2 == 0
        keep = op in kept and not second
        return ac.CheckpointPolicy.MUST_SAVE if keep else ac.CheckpointPolicy.PREFER_RECOMPUTE

    return ac.create_selective_checkpoint_contexts(policy)


dist.init_process_group("nccl")
config = LlamaConfig(vocab_size=128_256, intermediate_size=14_336, num_key_value_heads=8)
with torch.device("meta"):
    model = LlamaForCausalLM(config).train()
half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for i, layer in enumerate(model.model.layers):
    layer = wrap.checkpoint_wrapper(layer, context_fn=contexts, preserve_rng_state=False)
    model.model.layers[i] = fully_shard(layer, mp_policy=half, reshard_after_forward=i < 31)
fully_shard(model, mp_policy=half).to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
for _ in range(3):
    text, labels = (torch.randint(0, 128_256, (2, 8192)).cuda() for _ in range(2))
    optimizer.zero_grad()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        logits = model(text, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        del logits
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
print("figure:", torch.cuda.max_memory_reserved() / 2**30, "GiB")
dist.destroy_process_group()
