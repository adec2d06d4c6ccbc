"""The GPUs that can be simulated: what decides how much memory is needed, and how fast they are.

They are in cards.csv. A card's memory is the least that users of Linux have reported of what
PyTorch sees, because drivers differ by a few hundred MiB. Its rates are those of the source in its
row. Where sources differ, it is the higher one, so that the bound stays one; where they have none,
it follows from the multiprocessors, what each does at a tick, and the clock (RTX 3060, RTX 4070 Ti
SUPER). The cache of an H200 is what PyTorch prints of one. A card that clocks higher is faster by a
few percent.
"""

import argparse
import csv
import dataclasses
import operator
import os
import time
import timeit
from pathlib import Path

import torch
from packaging.version import Version

GIB = 2**30 / 1e9  # in GB
INSTALLED = Version(torch.__version__).release[:2]  # of PyTorch, (major, minor)
FIRST, LAST = (2, 11), (2, 15)  # whose workspaces are known
RATES = ("fp32", "tf32", "half", "memory", "cache", "host", "gpus")


@dataclasses.dataclass(frozen=True)
class Rates:
    """What a device does at most."""

    fp32: float  # 1e12 floating-point operations per second in matrix products
    tf32: float | None  # the same with TF32, None if the card does not have it
    half: float  # the same with operands in 16 bit and sums in fp32, without sparsity
    memory: float  # GB per second that it reads and writes of its memory
    cache: float = 0  # MiB of its L2 cache
    # GB per second to or from the host: PCIe, without what its packets cost.
    host: float = float("inf")
    # GB per second from other GPUs: NVLink, or None if they talk through the host. A bridge between
    # two cards does not count.
    gpus: float | None = None
    bf16: bool = True  # whether `half` is true of bf16, too

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


@dataclasses.dataclass(frozen=True)
class Card:
    """A GPU."""

    title: str  # for people
    gib: float  # of memory, as PyTorch reports it
    capability: tuple  # (major, minor): https://developer.nvidia.com/cuda-gpus
    multiprocessors: int
    threads: int  # that can be resident on each of them
    rates: Rates | None = None  # how fast it can be at most; None if that is not known

    @property
    def gb(self):
        """Its memory in GB (1e9 bytes)."""
        return self.gib * GIB

    @property
    def bf16(self):
        """Whether it has instructions for bf16."""
        return self.capability >= (8, 0)


def _read(row):
    capability = tuple(map(int, row["capability"].split(".")))
    built = int(row["multiprocessors"]), int(row["threads"])
    rates = [float(row[name]) if row[name] else None for name in RATES]
    card = Card(row["title"], float(row["gib"]), capability, *built)
    return dataclasses.replace(card, rates=Rates(*rates, bf16=card.bf16))


with Path(__file__).with_name("cards.csv").open(newline="") as file:
    CARDS = {row["name"]: _read(row) for row in csv.DictReader(file)}
DEFAULT = CARDS["a100"]


def get(name):
    """Returns the card of a name, such as "h100", "H100" or "RTX 4090"."""
    short = name.lower().replace(" ", "")
    if short not in CARDS:
        known = ", ".join(CARDS)
        raise argparse.ArgumentTypeError(f"{name} is no card that is known; choose from {known}")
    return CARDS[short]


def card_or_gb(text):
    """Returns a size in GB, or the card of a name."""
    return text.replace(".", "", 1).isdecimal() and float(text) or get(text)


def version(text):
    """Converts a version of PyTorch, such as "2.11" or "2.11.0", to (major, minor)."""
    found = Version(text).release[:2]
    if not FIRST <= found <= max(LAST, INSTALLED):
        raise ValueError(text)
    return found


def of_this_machine(properties):
    """Returns the card of a machine, from torch.cuda.get_device_properties."""
    here = Card(
        properties.name.removeprefix("NVIDIA "),
        properties.total_memory / 2**30,
        (properties.major, properties.minor),
        properties.multi_processor_count,
        properties.max_threads_per_multi_processor,
    )
    # Its rates are those of the card that is built like it, and has most nearly its memory.
    shape = operator.attrgetter("capability", "multiprocessors")
    alike = [card for card in CARDS.values() if shape(card) == shape(here)]
    nearest = min(alike, key=lambda card: abs(card.gib - here.gib), default=here)
    return dataclasses.replace(here, rates=nearest.rates)


def probe(seconds=1.0):
    """Returns the rates of this computer's CPU: the fastest that was seen of a core, for all cores.

    One core alone is not slowed down by what runs on the others, and all together are not faster
    than so many times one. What is small enough stays in the caches, so the rate of the memory is
    that of sums of any size, and no cache has to be known.
    """
    threads, flops, memory = torch.get_num_threads(), 0, 0
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(384, 384, dtype=dtype)
        flops = max(flops, 2 * 384**3 / _fastest(lambda: a @ a, seconds / 4) / 1e12)
    for n in (1 << power for power in range(12, 25, 2)):  # of numbers: 16 KB to 64 MB
        x, y = torch.ones(n), torch.ones(n)
        fastest = _fastest(lambda: torch.add(x, x, out=y), seconds / 14)
        memory = max(memory, 12 * n / fastest / 1e9)
    torch.set_num_threads(threads)
    cores = os.cpu_count()
    return Rates(flops * cores, None, flops * cores, memory * cores)


def _fastest(call, seconds):
    """Returns the seconds of the fastest of many calls."""
    until = time.perf_counter() + seconds
    call()
    times = [timeit.timeit(call, number=3) / 3]
    while time.perf_counter() < until:
        times.append(timeit.timeit(call, number=3) / 3)
    return min(times)
