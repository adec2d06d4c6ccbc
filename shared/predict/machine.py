"""The versions of PyTorch whose workspaces are known, and the rates of this computer's CPU."""

import os
import time
import timeit

import torch
from packaging.version import Version

from shared.emulator.cards import Rates

INSTALLED = Version(torch.__version__).release[:2]  # of PyTorch, (major, minor)
FIRST, LAST = (2, 11), (2, 15)  # versions whose workspaces are known


def version(text):
    """Convert a version of PyTorch, such as "2.11" or "2.11.0", to (major, minor)."""
    found = Version(text).release[:2]
    if not FIRST <= found <= max(LAST, INSTALLED):
        raise ValueError(text)
    return found


def probe(seconds=1.0):
    """Return the rates of this computer's CPU: the highest measured on one core, times all cores.

    A core alone is not slowed down by work on the others, and n cores are at most n times as fast.
    Small operands stay in the caches. So the memory's rate is the highest over additions of many
    sizes, and the sizes of the caches need not be known.
    """
    threads, flops, memory = torch.get_num_threads(), 0, 0
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(384, 384, dtype=dtype)
        flops = max(flops, 2 * 384**3 / _fastest(lambda: a @ a, seconds / 4) / 1e12)
    for n in (1 << power for power in range(12, 25, 2)):  # of numbers: 16 KB to 64 MB
        x, y = torch.ones(n), torch.ones(n)
        memory = max(memory, 12 * n / _fastest(lambda: torch.add(x, x, out=y), seconds / 14) / 1e9)
    torch.set_num_threads(threads)
    cores = os.cpu_count()
    return Rates(flops * cores, None, flops * cores, memory * cores)


def _fastest(call, seconds):
    """Repeat a call for some seconds, and return the seconds of the fastest."""
    until = time.perf_counter() + seconds
    call()
    times = [timeit.timeit(call, number=3) / 3]
    while time.perf_counter() < until:
        times.append(timeit.timeit(call, number=3) / 3)
    return min(times)
