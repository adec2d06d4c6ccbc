"""How fast GPUs can be at most, by their data sheets, and a computer without one, by a probe.

The rates are those of data sheets and white papers, which are named above the cards. Where these
differ, it is the higher one, so that the bound stays one. Where they have none, it follows from the
multiprocessors, what each does at a tick, and the clock (RTX 3060, RTX 4070 Ti SUPER). The cache of
an H200 is what PyTorch prints of one. A card that clocks higher is faster by a few percent.
"""

import dataclasses
import os
import time

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
        if kind == "tf32":
            rate = self.tf32 or self.fp32
        elif kind == "attention":
            # Memory-efficient attention multiplies fp32 by three products of TF32, where there is
            # one: OpMultiplyAddFastF32 in `mem_eff_attention/gemm/` of PyTorch.
            rate = max(self.fp32, (self.tf32 or 0) / 3)
        elif kind == "fp16" or (kind == "bf16" and self.bf16):
            rate = self.half
        else:
            rate = self.fp32
        return rate * 1e12


PCIE3, PCIE4, PCIE5 = 15.75, 31.5, 63.0  # 16 lanes
OF_CARDS = {
    # images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf
    "v100": Rates(15.7, None, 125, 900, 6, PCIE3, 150, bf16=False),
    "v100-32": Rates(15.7, None, 125, 900, 6, PCIE3, 150, bf16=False),
    # www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet.pdf
    "t4": Rates(8.1, None, 65, 320, 4, PCIE3, bf16=False),
    # NVIDIA A100 Tensor Core GPU Architecture, white paper
    "a100": Rates(19.5, 156, 312, 2039, 40, PCIE4, 300),
    "a100-40": Rates(19.5, 156, 312, 1555, 40, PCIE4, 300),
    # www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf
    "a10": Rates(31.2, 62.5, 125, 600, 6, PCIE4),
    # d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf
    "a10g": Rates(35.0, 35.0, 70, 600, 6, PCIE4),
    # www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf
    "a6000": Rates(38.7, 77.4, 154.8, 768, 6, PCIE4),
    "rtx3060": Rates(12.7, 12.7, 25.5, 360, 3, PCIE4),
    "rtx3080": Rates(29.8, 29.8, 59.5, 760, 5, PCIE4),
    "rtx3090": Rates(35.6, 35.6, 71, 936, 6, PCIE4),
    # NVIDIA Ada GPU Architecture, white paper, version 2.1
    "l4": Rates(30.3, 60, 121, 300, 48, PCIE4),
    # resources.nvidia.com/en-us-l40s/l40s-datasheet-28413
    "l40s": Rates(91.6, 183, 366, 864, 96, PCIE4),
    # images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf
    "rtx4070tis": Rates(44.1, 44.1, 88.2, 672, 48, PCIE4),
    "rtx4080": Rates(48.7, 48.7, 97.5, 717, 64, PCIE4),
    "rtx4090": Rates(82.6, 82.6, 165.2, 1008, 72, PCIE4),
    "rtx6000ada": Rates(91.1, 182.1, 364.2, 960, 96, PCIE4),
    # resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper
    "h100": Rates(66.9, 494.7, 989.4, 3350, 50, PCIE5, 450),
    "h100-pcie": Rates(51.2, 378, 756, 2039, 50, PCIE5),
    # nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446
    "h200": Rates(66.9, 494.7, 989.4, 4800, 60, PCIE5, 450),
    # resources.nvidia.com/en-us-blackwell-architecture/datasheet
    "b200": Rates(80, 1125, 2250, 8000, 126, PCIE5, 900),
    # NVIDIA RTX Blackwell GPU Architecture, white paper
    "rtx5090": Rates(104.8, 104.8, 209.5, 1792, 96, PCIE5),
}


def probe(seconds=1.0):
    """Returns the rates of this computer's CPU: the fastest that was seen of a core, for all cores.

    One core alone is not slowed down by what runs on the others, and all together are not faster
    than so many times one. What is small enough stays in the caches, so the rate of the memory is
    that of sums of any size, and no cache has to be known.

    Args:
        seconds: how long to measure, at least.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        flops, memory = _of_a_core(seconds)
    finally:
        torch.set_num_threads(threads)
    flops, memory = (rate * os.cpu_count() for rate in (flops, memory))
    return Rates(flops, None, flops, memory)


def _of_a_core(seconds):
    """Returns 1e12 operations, and GB, per second."""
    products = {}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(384, 384, dtype=dtype)
        products[dtype] = 2 * 384**3 / _fastest(lambda: a @ a, seconds / 4) / 1e12
    moved = []
    for n in (1 << power for power in range(12, 25, 2)):  # of numbers: 16 KB to 64 MB
        x, y = torch.ones(n), torch.ones(n)
        moved.append(12 * n / _fastest(lambda: torch.add(x, x, out=y), seconds / 14) / 1e9)
    return max(products.values()), max(moved)


def _fastest(call, seconds):
    """Returns the seconds of the fastest of many calls."""
    best, until = float("inf"), time.perf_counter() + seconds
    call()
    while True:
        started = time.perf_counter()
        for _ in range(3):
            call()
        now = time.perf_counter()
        best = min(best, (now - started) / 3)
        if now > until:
            return best
