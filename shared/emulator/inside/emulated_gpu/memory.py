"""The memory of small tensors on the emulated GPU, and what is known of their values."""

import contextlib
import ctypes
import math

import torch

LARGE = 1 << 20  # bytes; COPIED in emulator.h
ASSUMED, COMPUTED = "assumed", "computed"
NEVER = "never true"  # of a large mask: where a number is not one

_random_state = torch.random.get_rng_state()


def on_gpu(t):
    return t.device.type == "cuda" and t.layout == torch.strided


def is_large(t):
    return t.untyped_storage().nbytes() > LARGE


def state_of(t):
    """Return COMPUTED, ASSUMED, or None where nothing is known of a tensor's values."""
    return getattr(t.untyped_storage(), "values", None)


def alias(t):
    """Return a tensor on the CPU that has the memory of a small one on the emulated GPU."""
    storage = t.untyped_storage()
    n = storage.nbytes()
    if not n:
        return torch.empty(t.size(), dtype=t.dtype)
    memory = (ctypes.c_ubyte * n).from_address(storage.data_ptr())
    whole = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    same = torch.empty(0, dtype=t.dtype).set_(whole, t.storage_offset(), t.size(), t.stride())
    return same.conj() if t.is_conj() else same


def to_cpu(x):
    if isinstance(x, torch.Tensor):
        return alias(x) if on_gpu(x) else x
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == "cuda" else x


def finite(t):
    """Replace what is not a number, and a number that is infinite, by 1: nobody computed it."""
    same = alias(t)
    infinity = 1.0 if t.numel() == 1 else None  # many are meant, in masks of attention
    torch.nan_to_num_(same, 1.0, infinity or math.inf, infinity or -math.inf)


@contextlib.contextmanager
def own_random_numbers():
    """Draw from a sequence of the emulated GPU's own, and leave the CPU's where it is."""
    global _random_state
    kept = torch.random.get_rng_state()
    torch.random.set_rng_state(_random_state)
    try:
        yield
    finally:
        _random_state = torch.random.get_rng_state()
        torch.random.set_rng_state(kept)
