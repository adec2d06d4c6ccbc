"""Storages of tensors, the categories they belong to, and the peaks in a log of them."""

import collections

import torch

# A storage keeps one of these categories once it has it. The others are guesses, made when the
# storage is allocated.
KNOWN = ("parameters", "gradients", "optimizer states", "inputs")
# Workspaces are not tensors. Only a simulation knows them, by formulas.
CATEGORIES = (*KNOWN, "activations", "recomputed", "gathered", "temporaries", "workspaces")


class Block:
    """A storage: its bytes, the type of its device, such as "cpu" or "cuda", and its category."""

    __slots__ = ("nbytes", "device", "label")

    def __init__(self, nbytes, device, label):
        self.nbytes, self.device, self.label = nbytes, device, label


def tensors(x):
    """Yields the tensors inside nested lists, tuples and dicts."""
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from tensors(y)
    elif isinstance(x, dict):
        yield from tensors(list(x.values()))


def moved(x, device):
    """Returns the same tensors on a device, in nested lists, for tuples too, and dicts."""
    if isinstance(x, torch.Tensor):
        return x.to(device)
    if isinstance(x, dict):
        return {name: moved(value, device) for name, value in x.items()}
    return [moved(value, device) for value in x]


def summit(events, device, since=0, until=None):
    """Finds the peak of a type of device in a Ledger's log.

    Args:
        since, until: the part of the log to search; what was allocated before counts too.

    Returns:
        the most bytes that were allocated at once; the bytes of each category at that moment; and
        the block whose allocation led there, None if that was before `since`.
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
