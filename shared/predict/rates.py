"""How fast a device can be at most; of a computer without a GPU, by a probe."""

import dataclasses
import os
import time
import timeit

import torch


@dataclasses.dataclass(frozen=True)
class Rates:
    """What a device does at most.

    Attributes:
        fp32: 1e12 floating-point operations per second in matrix products.
        tf32: the same with TF32, None if the card does not have it.
        half: the same with operands in 16 bit and sums in fp32, without sparsity.
        memory: GB per second that it reads and writes of its memory.
        cache: MiB of its L2 cache.
        host: GB per second to or from the host: PCIe, without what its packets cost.
        gpus: GB per second from other GPUs: NVLink, or None if they talk through the host. A bridge
            between two cards does not count.
        bf16: whether `half` is true of bf16, too.
    """

    fp32: float
    tf32: float | None
    half: float
    memory: float
    cache: float = 0
    host: float = float("inf")
    gpus: float | None = None
    bf16: bool = True

    def flops(self, kind):
        """Returns the floating-point operations per second of a kind, as cost.Operation has it."""
        rate = self.fp32
        if kind == "tf32":
            rate = self.tf32 or self.fp32
        elif kind == "attention":
            # Memory-efficient attention multiplies fp32 by three products of TF32, where there is
            # one: OpMultiplyAddFastF32 in `mem_eff_attention/gemm/` of PyTorch.
            rate = max(self.fp32, (self.tf32 or 0) / 3)
        elif kind == "fp16" or (kind == "bf16" and self.bf16):
            rate = self.half
        return rate * 1e12


def probe(seconds=1.0):
    """Returns the rates of this computer's CPU: the fastest that was seen of a core, for all cores.

    One core alone is not slowed down by what runs on the others, and all together are not faster
    than so many times one. What is small enough stays in the caches, so the rate of the memory is
    that of sums of any size, and no cache has to be known.

    Args:
        seconds: how long to measure, at least.
    """
    threads, flops, memory = torch.get_num_threads(), 0, 0
    torch.set_num_threads(1)
    try:
        for dtype in (torch.float32, torch.bfloat16):
            a = torch.ones(384, 384, dtype=dtype)
            flops = max(flops, 2 * 384**3 / _fastest(lambda: a @ a, seconds / 4) / 1e12)
        for n in (1 << power for power in range(12, 25, 2)):  # of numbers: 16 KB to 64 MB
            x, y = torch.ones(n), torch.ones(n)
            fastest = _fastest(lambda: torch.add(x, x, out=y), seconds / 14)
            memory = max(memory, 12 * n / fastest / 1e9)
    finally:
        torch.set_num_threads(threads)
    cores = os.cpu_count()
    return Rates(flops * cores, None, flops * cores, memory * cores)


def _fastest(call, seconds):
    """Returns the seconds of the fastest of many calls."""
    best, until = float("inf"), time.perf_counter() + seconds
    call()
    while best == float("inf") or time.perf_counter() < until:
        best = min(best, timeit.timeit(call, number=3) / 3)
    return best
