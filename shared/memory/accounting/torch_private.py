"""Private names of PyTorch that measuring needs, each with the consequence of its absence.

There is no public interface for them. When PyTorch changes a name, tests/test_private_names reports
it, and scripts run without it. The emulator needs more such names.
"""

import contextlib
import functools
import os
import pkgutil
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map_only

FSDP_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup"
# Not waited for: two ranks that both send first, and wait until it has arrived, would deadlock.
MESSAGES = ("send", "recv_", "recv_any_source_")
PROPAGATOR = "torch.distributed.tensor._sharding_prop:ShardingPropagator"


@functools.cache
def lookup(path, without):
    """Return the object at "module.of.torch:Class.method"; print once what fails if it is gone."""
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":
            print(f"- {path} is gone from PyTorch {torch.__version__}: {without}", flush=True)


def in_backward():
    """Return whether a backward pass is running."""
    without = "memory of the backward pass counts as activations"
    running = lookup("torch._C:_current_graph_task_id", without)
    return running is not None and running() != -1


def wrapped(owner, name, wrapper):
    """Return a context in which wrapper(original, *args, **kwargs) replaces owner.name."""
    original = getattr(owner, name)
    return mock.patch.object(owner, name, lambda *args, **kw: wrapper(original, *args, **kw))


@contextlib.contextmanager
def reporting_to(ledger):
    """Report to a ledger, in this context, changes of memory that are not results of operations."""

    def during(flag, original, *args, **kwargs):
        with mock.patch.object(ledger, flag, True):
            return original(*args, **kwargs)

    paused, gathering = (functools.partial(during, flag) for flag in ("paused", "gathering"))

    def load(original, *args, **kwargs):
        loaded = paused(original, *args, **kwargs)
        for t in tree_leaves(loaded):
            if isinstance(t, torch.Tensor):
                ledger.note_file(t) if kwargs.get("mmap") else ledger.note(t)
        return loaded

    def moved(original, module, *args, **kwargs):
        ledger.note_group({"params": module.parameters(recurse=False)})  # and gradients
        result = original(module, *args, **kwargs)
        ledger.note_group({"params": module.parameters(recurse=False)})
        return result

    def resized(original, storage, *args):
        result = original(storage, *args)
        ledger.resized(storage)
        return result

    def added(original, optimizer, group):
        original(optimizer, group)
        ledger.note_group(optimizer.param_groups[-1])

    names = [
        # Tensors that are read from a file are not the result of an operation.
        ("torch:load", load, "tensors from files are missing"),
        # FSDP2 frees gathered weights by resizing their storage to 0.
        ("torch:UntypedStorage.resize_", resized, "gathered weights seem to stay allocated"),
        # Parameters that were moved or sharded after they were registered have new storages.
        ("torch.optim:Optimizer.add_param_group", added, "shards are counted late"),
        ("torch.nn:Module._apply", moved, "moved weights are counted late"),
        # gloo reduces tensors in buffers of its own, which no prediction contains.
        ("torch.distributed:Work.wait", paused, "gloo's buffers are counted"),
        # DDP keeps a collective's result, on a CPU a copy (see on_copies), besides its own buffer.
        ("torch.nn.parallel:DistributedDataParallel.__init__", own_hook, "gradients seem doubled"),
    ]
    if dist.is_initialized():  # else there are no shards
        # A single process sends nothing: FSDP2 copies its shards, which are whole weights, with
        # ordinary operations.
        names.append((f"{FSDP_GROUP}.wait_for_unshard", gathering, "gathered may be activations"))
        # DTensor infers the shape of a result by running the operation on tensors without memory.
        name = f"{PROPAGATOR}._propagate_tensor_meta_non_cached"
        names.append((name, paused, "the optimizer step seems larger"))
    with contextlib.ExitStack() as stack:
        for path, wrapper, without in names:
            if lookup(path, without):
                owner, _, name = path.replace(":", ".").rpartition(".")
                stack.enter_context(wrapped(pkgutil.resolve_name(owner), name, wrapper))
        yield


def own_hook(original, model, *args, **kwargs):
    """Make DDP average gradients over all processes in its own buffers, except on CUDA."""

    def averaged(_, bucket):
        gradients = bucket.buffer().div_(dist.get_world_size())
        dist.all_reduce(gradients)
        done = torch.futures.Future()
        done.set_result(gradients)
        return done

    original(model, *args, **kwargs)
    if model.device_type != "cuda":
        model.register_comm_hook(None, averaged)


def exchanges(func):
    """Return whether an operation is a collective, which sends tensors to other processes."""
    if func.namespace == "_c10d_functional":  # DTensor's return new tensors; some only wait
        wait = lookup("torch:ops._c10d_functional.wait_tensor", "memory varies from run to run")
        return bool(wait) and any(a.name == "group_name" for a in func._schema.arguments)
    return func.namespace == "c10d" and func.overloadpacket.__name__ not in MESSAGES


def on_copies(func, args, kwargs):
    """Run a collective on copies of CPU tensors, and wait until it is done.

    gloo's threads hold what they have sent a moment longer than the training does, sometimes until
    after the next allocation. With copies, which are not logged, every run gives the same bytes.
    """
    originals = {}  # id of a copy -> (the tensor, its copy)

    def copied(t):
        copy = t.clone() if t.device.type == "cpu" else t
        originals[id(copy)] = t, copy
        return copy

    def own(t):  # gloo's threads hold new tensors, too
        if id(t) in originals:
            return originals[id(t)][0]
        return torch.ops._c10d_functional.wait_tensor(t).clone()

    own_args, own_kwargs = tree_map_only(torch.Tensor, copied, (args, kwargs))
    out = func(*own_args, **own_kwargs)
    if all(t is copy for t, copy in originals.values()):
        return out
    for work in tree_leaves(out):
        if isinstance(work, torch.ScriptObject):
            work.wait()
    for t, copy in originals.values():
        t.copy_(copy)
    return tree_map_only(torch.Tensor, own, out)
