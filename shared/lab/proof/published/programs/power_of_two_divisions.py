"""Blocks rounded up to fractions of powers of two, a setting that the script itself makes.

Report: https://github.com/pytorch/pytorch/issues/161139 (2025, GPU not named): 514 MiB of int8
under roundup_power2_divisions:[>:2] take 768 MiB; under [>:1] 514, which are not rounded.
Reading: allocated memory. First argument: the divisions, 2 by default.
"""

import os
import sys

divisions = sys.argv[1] if len(sys.argv) > 1 else "2"
for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
    os.environ[name] = f"roundup_power2_divisions:[>:{divisions}]"

import torch  # noqa: E402

data = torch.empty(514 * 2**20, dtype=torch.int8, device="cuda")
print("figure:", torch.cuda.memory_allocated() / 2**20, "MiB")
