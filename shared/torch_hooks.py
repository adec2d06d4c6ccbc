"""What the ledger must know of PyTorch that no public interface tells.

The private names that this repository needs are all here, each with what would go wrong without it.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._pytree import tree_leaves, tree_map_only


def in_backward():
    """Tells whether a backward pass is running; else recomputed activations would count as first ones."""
    return torch._C._current_graph_task_id() != -1


def next_node():
    """Returns the number that the next node of the autograd graph gets; they count up through the forward pass."""
    return torch.autograd._get_sequence_nr()


def node_at_work():
    """Returns the number of the node whose backward is running, None outside of a backward pass; else nobody could tell
    which module a gradient is computed for.
    """
    node = torch._C._current_autograd_node()
    return node._sequence_nr() if node else None


@contextlib.contextmanager
def reporting_to(ledger):
    """Tells a ledger what no operation shows, while the context is active."""

    # FSDP2 frees gathered weights by resizing their storage to 0: without this they would seem to stay.
    def resize(original, storage, nbytes):
        result = original(storage, nbytes)
        ledger.resized(storage)
        return result

    # What is read from a file comes from no operation (or, of fake tensors, as one without memory), and with mmap=True it is
    # pages of the file: without this, the first would be missing and the second count as memory.
    def load(original, *args, **kwargs):
        with ledger.pause():
            loaded = original(*args, **kwargs)
        for t in tree_leaves(loaded):
            if isinstance(t, torch.Tensor):
                ledger.note_file(t) if kwargs.get("mmap") else ledger.note(t)
        return loaded

    # Parameters that were moved or sharded after they were registered are known again when an optimizer gets them.
    def add_param_group(original, optimizer, group):
        original(optimizer, group)
        ledger.note_group(optimizer.param_groups[-1])

    # Moving or converting a model gives its parameters new storages: without this they would be unknown until the first
    # step of the optimizer.
    def apply(original, module, fn, recurse=True):
        result = original(module, fn, recurse)
        for p in module._parameters.values():
            if p is not None:
                ledger.note(p, "parameters")
        return result

    # DTensor finds the shape of a result by running the operation on tensors without memory: without this the step of an
    # optimizer over shards would seem to hold whole parameters.
    def propagate(original, *args, **kwargs):
        with ledger.pause():
            return original(*args, **kwargs)

    # gloo adds up what the processes send when it is waited for, with buffers of its own: without this they would count,
    # and no prediction would know of them.
    def wait(original, *args, **kwargs):
        with ledger.pause():
            return original(*args, **kwargs)

    with (
        wrapped(dist.Work, "wait", wait),
        wrapped(torch.UntypedStorage, "resize_", resize),
        wrapped(torch, "load", load),
        wrapped(torch.optim.Optimizer, "add_param_group", add_param_group),
        wrapped(torch.nn.Module, "_apply", apply),
        wrapped(ShardingPropagator, "_propagate_tensor_meta_non_cached", propagate),
    ):
        yield


def on_copies(func, args, kwargs):
    """Lets processes exchange copies of CPU tensors, and waits for it.

    The threads of gloo hold what they have sent a moment longer than the training does, sometimes until after the next
    allocation. With copies, which are not booked, the same run gives the same bytes.
    """
    pairs = {}

    def copied(t):
        pairs[id(t)] = t, t.clone() if t.device.type == "cpu" else t
        return pairs[id(t)][1]

    out = func(*tree_map_only(torch.Tensor, copied, args), **tree_map_only(torch.Tensor, copied, kwargs))
    if all(t is copy for t, copy in pairs.values()):
        return out
    for work in tree_leaves(out):
        if isinstance(work, torch.ScriptObject):
            work.wait()
    for t, copy in pairs.values():
        t.copy_(copy)
    originals = {id(copy): t for t, copy in pairs.values()}
    return tree_map_only(torch.Tensor, lambda t: originals.get(id(t), t), out)


@contextlib.contextmanager
def wrapped(owner, name, wrapper):
    """Replaces the function `owner.name` by wrapper(original, *args, **kwargs) while the context is active."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))
    try:
        yield
    finally:
        setattr(owner, name, original)
