"""Storages of tensors, their categories, and the peak memory in a log of allocations."""

import collections
import dataclasses

import torch
from torch.utils._pytree import tree_leaves

# A storage with one of these categories keeps it. GUESSES are made when a storage is allocated.
KNOWN = ("parameters", "gradients", "optimizer states", "inputs")
GUESSES = ("activations", "recomputed", "gathered", "temporaries")
# The last two are not tensors; PyTorch's counters on CUDA include them.
CATEGORIES = (*KNOWN, *GUESSES, "workspaces", "rounding")
PLAIN = (bool, int, float, str)  # types of arguments that have no tensors inside


@dataclasses.dataclass(eq=False, slots=True)
class Block:
    """A storage: size in bytes, type of device, and category."""

    nbytes: int
    device: str  # such as "cpu" or "cuda"
    label: str


def tensors(x):
    """Yield the tensors inside nested lists, tuples and dicts."""
    if isinstance(x, torch.Tensor):
        yield x
    elif type(x) in (list, tuple, dict):  # tree_leaves() takes twice as long
        for part in x.values() if type(x) is dict else x:
            yield from tensors(part)
    elif x is not None and type(x) not in PLAIN:
        yield from (leaf for leaf in tree_leaves(x) if isinstance(leaf, torch.Tensor))


def parts_of(tensor):
    """Return the tensors that a DTensor or a quantized tensor consists of; [] for other tensors.

    Such a tensor has no memory of its own; its storage is only a wrapper.
    """
    if not hasattr(tensor, "__tensor_flatten__"):
        return []
    return [*tensors([getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]])]


def summit(events, device, since=0, until=None):
    """Find the peak on a type of device in a Ledger's log.

    What was allocated before `since` counts too. Return the peak in bytes, the bytes of each
    category at the peak, and the block whose allocation reached it, None if it was before `since`.
    """
    total, held = 0, collections.Counter()
    peak, at_peak = 0, {}
    last = None
    for i, (block, change) in enumerate(events[:until]):
        if block.device == device:
            total += change
            held[block.label] += change
        if i >= since - 1 and total > peak:
            peak, at_peak = total, dict(held)
            last = block if i >= since else None
    return peak, {label: at_peak[label] for label in CATEGORIES if at_peak.get(label)}, last
