"""Private names of PyTorch that measuring needs, each with what would go wrong without it.

There is no public interface for these things. The names that simulating needs are in
shared/predict/gpu.py and shared/predict/processes.py. tests/test_private_names.py fails when
PyTorch changes one.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map_only


def in_backward():
    """Tells whether a backward pass is running.

    Without this, recomputed activations could not be told from those of the forward pass.
    """
    return torch._C._current_graph_task_id() != -1


def next_node():
    """Returns the number that the next node of the autograd graph gets.

    The numbers increase during the forward pass.
    """
    return torch.autograd._get_sequence_nr()


def node_at_work():
    """Returns the number of the node whose backward is running, None outside of a backward pass.

    Without this, it would not be known for which module a gradient is computed.
    """
    node = torch._C._current_autograd_node()
    return node._sequence_nr() if node else None


@contextlib.contextmanager
def reporting_to(ledger):
    """Reports to a ledger what it cannot see in operations, while the context is active."""

    # FSDP2 frees gathered weights by resizing their storage to 0. Without this they would seem to
    # stay.
    def resize(original, storage, nbytes):
        result = original(storage, nbytes)
        ledger.resized(storage)
        return result

    # Tensors that are read from a file are the result of no operation (or, if they are fake, of one
    # without memory). With mmap=True they are pages of the file. Without this, the former would be
    # missing, and the latter would count as memory.
    def load(original, *args, **kwargs):
        with ledger.pause():
            loaded = original(*args, **kwargs)
        for t in tree_leaves(loaded):
            if isinstance(t, torch.Tensor):
                ledger.note_file(t) if kwargs.get("mmap") else ledger.note(t)
        return loaded

    # Parameters that were moved or sharded after they were registered have new storages. Without
    # this they would be unknown until the first step of the optimizer.
    def add_param_group(original, optimizer, group):
        original(optimizer, group)
        ledger.note_group(optimizer.param_groups[-1])

    # Moving or converting a model gives its parameters new storages. Without this they would be
    # unknown until an optimizer gets them.
    def apply(original, module, fn, recurse=True):
        result = original(module, fn, recurse)
        for p in module._parameters.values():
            if p is not None:
                ledger.note(p, "parameters")
        return result

    # DTensor finds the shape of a result by running the operation on tensors without memory.
    # Without this the step of an optimizer over shards would seem to hold whole parameters.
    def propagate(original, *args, **kwargs):
        with ledger.pause():
            return original(*args, **kwargs)

    # gloo reduces what the processes send while the training waits for it, in buffers of its own.
    # Without this they would count, but no prediction contains them.
    def wait(original, *args, **kwargs):
        with ledger.pause():
            return original(*args, **kwargs)

    # A single process sends nothing: FSDP2 copies its shards, which are whole weights, with
    # ordinary operations. Without this its gathered weights would seem to be activations.
    def unshard(original, *args, **kwargs):
        with ledger.gathering():
            return original(*args, **kwargs)

    # DDP keeps what the processes sent each other in place of its own buffers. On a CPU these are
    # copies (see on_copies), and in a simulation nobody answers. Without this, every gradient would
    # seem to be there twice, or the simulation would fail.
    def ddp(original, model, *args, **kwargs):
        original(model, *args, **kwargs)
        if model.device_type != "cuda":
            model.register_comm_hook(None, _averaged)

    with (
        wrapped(DistributedDataParallel, "__init__", ddp),
        wrapped(FSDPParamGroup, "wait_for_unshard", unshard),
        wrapped(dist.Work, "wait", wait),
        wrapped(torch.UntypedStorage, "resize_", resize),
        wrapped(torch, "load", load),
        wrapped(torch.optim.Optimizer, "add_param_group", add_param_group),
        wrapped(torch.nn.Module, "_apply", apply),
        wrapped(ShardingPropagator, "_propagate_tensor_meta_non_cached", propagate),
    ):
        yield


def _averaged(state, bucket):
    """Averages a bucket of gradients over all processes, in place."""
    gradients = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(gradients)
    done = torch.futures.Future()
    done.set_result(gradients)
    return done


def exchanges(func):
    """Tells whether an operation sends tensors to other processes.

    "c10d" are those that fill tensors they are given; those of DTensor make new ones, and some
    only wait for them. Without this, the next function would be called for too few, or too many.
    """
    if func.namespace == "_c10d_functional":
        return any(argument.name == "group_name" for argument in func._schema.arguments)
    return func.namespace == "c10d"


def group_size(func, args):
    """Returns how many processes take part in an operation that exchanges() is true of.

    Without this, it would not be known how much of a tensor comes from the others.
    """
    if func.namespace == "c10d":
        groups = (
            dist.ProcessGroup.unbox(a)
            for a in args
            if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type())
        )
        return next(groups).size()
    name = next(v for a, v in zip(func._schema.arguments, args) if a.name == "group_name")
    return dist.distributed_c10d._resolve_process_group(name).size()


def on_copies(func, args, kwargs):
    """Lets processes exchange copies of CPU tensors, and waits until that is done.

    gloo's threads hold what they have sent a moment longer than the training does, sometimes until
    after the next allocation. With copies, which are not logged, every run gives the same bytes.
    """
    pairs = {}

    def copied(t):
        pairs[id(t)] = t, t.clone() if t.device.type == "cpu" else t
        return pairs[id(t)][1]

    own_args, own_kwargs = (tree_map_only(torch.Tensor, copied, part) for part in (args, kwargs))
    out = func(*own_args, **own_kwargs)
    if all(t is copy for t, copy in pairs.values()):
        return out
    for work in tree_leaves(out):
        if isinstance(work, torch.ScriptObject):
            work.wait()
    for t, copy in pairs.values():
        t.copy_(copy)
    originals = {id(copy): t for t, copy in pairs.values()}

    def own(t):  # what is new is in the hands of gloo's threads, too
        known = originals.get(id(t))
        return torch.ops._c10d_functional.wait_tensor(t).clone() if known is None else known

    return tree_map_only(torch.Tensor, own, out)


@contextlib.contextmanager
def wrapped(owner, name, wrapper):
    """Replaces a function while the context is active.

    Args:
        owner, name: the function is owner.name.
        wrapper: is called instead, as wrapper(original, *args, **kwargs).
    """
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))
    try:
        yield
    finally:
        setattr(owner, name, original)


def cpu_multiplies_bf16():
    """Tells whether the CPU has instructions for bf16; without them its products are slow."""
    # Without oneDNN, as on some Macs, there is no such operation; products are fast there anyway.
    if not torch.backends.mkldnn.is_available():
        return True
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


def address(storage):
    """Returns the address of a storage's record, unique until it is freed; fake ones have one, too.

    Without this, the results of an operation could not be told from what it was given.
    """
    return storage._cdata


@contextlib.contextmanager
def allocation_history(file):
    """Writes all that the CUDA allocator does while the context is active into a file.

    Documented, in spite of the underscores:
    https://docs.pytorch.org/docs/stable/torch_cuda_memory.html

    Args:
        file: pathlib.Path; None for doing nothing.
    """
    if file is None:
        yield
        return
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    try:
        yield
        torch.cuda.memory._dump_snapshot(str(file))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
