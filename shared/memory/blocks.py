"""Storages of tensors, their categories, and the peak of memory in a log of them."""

import collections

import torch
from torch.utils._pytree import tree_leaves

# A storage keeps one of these categories. The others are guesses, made when it is allocated.
KNOWN = ("parameters", "gradients", "optimizer states", "inputs")
# The last two are not tensors. A CountedLedger reads them from counters.
GUESSES = ("activations", "recomputed", "gathered", "temporaries")
CATEGORIES = (*KNOWN, *GUESSES, "workspaces", "rounding")


class Block:
    """A storage: its size in bytes, device type, such as "cpu" or "cuda", and category."""

    __slots__ = ("nbytes", "device", "label")

    def __init__(self, nbytes, device, label):
        self.nbytes, self.device, self.label = nbytes, device, label


def tensors(x):
    """Yield the tensors inside nested lists, tuples and dicts."""
    return (leaf for leaf in tree_leaves(x) if isinstance(leaf, torch.Tensor))


def summit(events, device, since=0, until=None):
    """Find the peak on a type of device in a Ledger's log.

    What was allocated before `since` counts too. Return the peak in bytes, the bytes of each
    category at the peak, and the block whose allocation reached it, None if that was earlier.
    """
    total, now = 0, collections.Counter()
    best, at_best, last = 0, {}, None
    for i, (block, change) in enumerate(events[:until]):
        if block.device == device:
            total += change
            now[block.label] += change
        if i >= since - 1 and total > best:
            best, at_best, last = total, dict(now), block if i >= since else None
    return best, {label: at_best[label] for label in CATEGORIES if at_best.get(label)}, last
