"""Storages of tensors, their categories, and the peak of memory in a log of them."""

import collections
import dataclasses

import torch
from torch.utils._pytree import tree_leaves

# A storage keeps one of these categories. The others are guesses, made when it is allocated.
KNOWN = ("parameters", "gradients", "optimizer states", "inputs")
GUESSES = ("activations", "recomputed", "gathered", "temporaries")
# The last two are not tensors; PyTorch's counters on CUDA include them.
CATEGORIES = (*KNOWN, *GUESSES, "workspaces", "rounding")
PLAIN = (bool, int, float, str)  # types of arguments that have no tensors inside


@dataclasses.dataclass(eq=False, slots=True)
class Block:
    """A storage: its size, the type of its device, and its category."""

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


def summit(events, device, since=0, until=None):
    """Find the peak on a type of device in a Ledger's log.

    What was allocated before `since` counts too. Return the peak in bytes, the bytes of each
    category at the peak, and the block whose allocation reached it, None if that was earlier.
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
