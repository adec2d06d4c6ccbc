"""One causal attention in fp16 with PyTorch's math kernels, or with flash attention.

Report: https://github.com/Bias92/sdpa-attention-benchmark (RTX 4060 Ti, a cu121 build; results.csv
has peaks in MiB for 8 heads of 64, batch 1): math 127.1337890625 with 1024 tokens, 462.1416015625
with 2048, 1780.1572265625 with 4096; flash 12.1259765625, 16.1259765625, 24.1259765625. The sizes
run one after the other in one process, math before flash.
Reading: peak of allocated memory with 4096 tokens. --flash for the second.
"""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

peaks = {}


def call(tokens, kernel):
    q, k, v = (torch.randn(1, 8, tokens, 64, device="cuda", dtype=torch.half) for _ in range(3))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with sdpa_kernel(kernel):
        for _ in range(12):
            scaled_dot_product_attention(q, k, v, is_causal=True)  # no result is kept
    peaks[tokens, kernel] = torch.cuda.max_memory_allocated() / 2**20
    print(tokens, kernel, peaks[tokens, kernel])


for tokens in (1024, 2048, 4096):
    for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        call(tokens, kernel)
chosen = SDPBackend.FLASH_ATTENTION if "--flash" in sys.argv else SDPBackend.MATH
print("figure:", peaks[4096, chosen], "MiB")
