"""The memory of small tensors on the emulated GPU, and what is known of their values.

Nothing here makes a Python object of a tensor's storage: PyTorch would then add gradients out of
place, since somebody else might still read them.
"""

import contextlib
import ctypes
import math

import torch

LARGE = 1 << 20  # bytes; COPIED in emulator.h
ASSUMED, COMPUTED = "assumed", "computed"
NEVER = "never true"  # of a large mask: where a number is not one

_states = {}  # address -> ASSUMED, COMPUTED or NEVER; absent where nothing is known
_random_state = torch.random.get_rng_state()


def on_gpu(t):
    return t.device.type == "cuda" and t.layout == torch.strided


def extent(t):
    """Return the bytes from a tensor's first value to its last one."""
    if not t.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(t.size(), t.stride()))
    return (last + 1) * t.element_size()


def is_large(t):
    return extent(t) > LARGE


def start(t):
    """Return the address at which the memory begins that a tensor is a view of."""
    return t.data_ptr() - t.storage_offset() * t.element_size()


def state_of(t):
    """Return what is known of a tensor's values: COMPUTED, ASSUMED, NEVER, or None."""
    return _states.get(start(t)) or _states.get(t.data_ptr())


def mark(t, state):
    """Set what is known of a tensor's values; None forgets it."""
    address = start(t) if t.storage_offset() == 0 or start(t) in _states else t.data_ptr()
    if state is None:
        _states.pop(address, None)
    else:
        _states[address] = state


def alias(t):
    """Return a tensor on the CPU that has the memory of a small one on the emulated GPU."""
    n = extent(t)
    if not n:
        return torch.empty(t.size(), dtype=t.dtype)
    memory = (ctypes.c_ubyte * n).from_address(t.data_ptr())
    values = torch.frombuffer(memory, dtype=torch.uint8).view(t.dtype)
    same = values.as_strided(t.size(), t.stride())
    return same.conj() if t.is_conj() else same


def to_cpu(x):
    if isinstance(x, torch.Tensor):
        return alias(x) if on_gpu(x) else x
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == "cuda" else x


def finite(t):
    """Replace what is not a number, and a number that is infinite, by 1: nobody computed it."""
    if t.dtype.itemsize == 1:  # no such operation
        return
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
