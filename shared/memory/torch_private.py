"""Private names of PyTorch that measuring needs, each with what would go wrong without it.

There is no public interface for these things. When PyTorch changes a name, tests/test_private_names
tells which, and scripts go on without what it was needed for; but not simulations, which need more
names, in shared/predict/gpu.py and shared/predict/processes.py.
"""

import contextlib
import functools
import os
import pkgutil

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map_only

WAIT = "torch:ops._c10d_functional.wait_tensor"
APPLY = "torch.nn:Module._apply"
UNSHARD = "torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup.wait_for_unshard"
PROPAGATE = (
    "torch.distributed.tensor._sharding_prop:ShardingPropagator._propagate_tensor_meta_non_cached"
)


@functools.cache
def lookup(path, without):
    """Returns what a name stands for; None, and says so once, if this PyTorch does not have it.

    Args:
        path: the name, such as "module.of.torch:Class.method".
        without: what happens in that case.
    """
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":
            print(f"- {path} is gone from PyTorch {torch.__version__}: {without}", flush=True)


def in_backward():
    """Tells whether a backward pass is running."""
    running = lookup(
        "torch._C:_current_graph_task_id", "what the backward pass holds counts as activations"
    )
    return running is not None and running() != -1


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
        for p in module.parameters(recurse=False):
            ledger.note(p, "parameters")
        return result

    # DTensor finds the shape of a result by running the operation on tensors without memory.
    def propagate(original, *args, **kwargs):
        with ledger.pause():
            return original(*args, **kwargs)

    # gloo reduces what the processes send while the training waits for it, in buffers of its own.
    # Without this they would count, but no prediction contains them.
    def wait(original, *args, **kwargs):
        with ledger.pause():
            return original(*args, **kwargs)

    # A single process sends nothing: FSDP2 copies its shards, which are whole weights, with
    # ordinary operations.
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

    replaced = [
        wrapped(DistributedDataParallel, "__init__", ddp),
        wrapped(dist.Work, "wait", wait),
        wrapped(torch.UntypedStorage, "resize_", resize),
        wrapped(torch, "load", load),
        wrapped(torch.optim.Optimizer, "add_param_group", add_param_group),
        wrapped_if_there(APPLY, apply, "weights that are moved are noticed late"),
    ]
    if dist.is_initialized():  # else there are no shards
        replaced.append(wrapped_if_there(UNSHARD, unshard, "gathered weights may be activations"))
        replaced.append(wrapped_if_there(PROPAGATE, propagate, "an optimizer's step seems larger"))
    with contextlib.ExitStack() as stack:
        for each in replaced:
            stack.enter_context(each)
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
    if func.namespace == "_c10d_functional" and lookup(WAIT, "memory varies from run to run"):
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


def wrapped_if_there(path, wrapper, without):
    """Does what wrapped() does, with a function that lookup() takes; nothing if it is gone."""
    if lookup(path, without) is None:
        return contextlib.nullcontext()
    owner, name = path.rsplit(".", 1)
    return wrapped(pkgutil.resolve_name(owner), name, wrapper)


def cpu_multiplies_bf16():
    """Tells whether the CPU has instructions for bf16; without them its products are slow."""
    # Without oneDNN, as on some Macs, there is no such operation; products are fast there anyway.
    if not torch.backends.mkldnn.is_available():
        return True
    supported = lookup(
        "torch:ops.mkldnn._is_mkldnn_bf16_supported", "on a CPU without bf16, it is slow"
    )
    return supported is None or supported()


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
