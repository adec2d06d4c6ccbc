"""Figures that programs read: PyTorch's counters, and what its errors name, in bytes."""

import re

import torch


def peak():
    """Return the peak of allocated memory."""
    return torch.cuda.max_memory_allocated()


def reset():
    """Let peaks begin anew, without what PyTorch keeps."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def asked(work):
    """Return what a function without arguments cannot get, 0 if it gets all."""
    try:
        work()
    except torch.OutOfMemoryError as error:
        number, unit = re.search(r"allocate ([\d.]+) (MiB|GiB)", str(error)).groups()
        return float(number) * {"MiB": 2**20, "GiB": 2**30}[unit]
    return 0


def update(loss, optimizer):
    """Train once, and free the gradients."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
