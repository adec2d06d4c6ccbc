"""One process as rank 0 of several, on a real GPU: PyTorch's own "fake" backend communicates.

Its collectives do nothing, so results mean nothing. Streams, copies and what FSDP frees are real.
The emulator has ranks of its own, whose NCCL copies.
"""

import contextlib
import functools
import importlib
import sys

import torch
import torch.distributed as dist

from shared.lab.records.running import become_rank


def begin(world_size):
    """Let init_process_group() and new_group() make groups of this process and of fake ranks."""
    importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers "fake"
    become_rank(0, world_size)
    torch.cuda.init()  # first: device_count() will include GPUs that do not exist
    torch.cuda.device_count = lambda: world_size
    properties = torch.cuda.get_device_properties
    torch.cuda.get_device_properties = lambda device=None: properties(0)  # torchao asks for each
    module = dist.distributed_c10d
    initialize = module.init_process_group
    new = module.new_group

    def init_process_group(backend=None, *args, timeout=None, **kwargs):
        limit = {"timeout": timeout} if timeout else {}
        # A store in this process: over the network it would wait for the other ranks.
        group = {"rank": 0, "world_size": world_size, "store": dist.HashStore()}
        return initialize("fake", **group, **limit)

    def new_group(ranks=None, *args, backend=None, **kwargs):
        return new(ranks, *args, backend="fake", **kwargs)

    def broadcast_object_list(object_list, *args, **kwargs):
        pass  # this rank is the sender

    pairs = [(initialize, init_process_group), (new, new_group)]
    pairs += [(module.broadcast_object_list, broadcast_object_list)]
    for original, replacement in pairs:
        name = replacement.__name__
        for importer in [*sys.modules.values()]:  # some have imported it by name
            with contextlib.suppress(TypeError):  # not a module
                if vars(importer).get(name) is original:
                    setattr(importer, name, replacement)
    module.split_group = None  # NCCL's
    _finish_buckets(torch.nn.parallel.DistributedDataParallel)


def _finish_buckets(ddp):
    """Let DDP take its buckets of gradients as they are: the fake backend's work has no result."""
    original = ddp.__init__

    def unchanged(state, bucket):
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    @functools.wraps(original)
    def initialized(model, *args, **kwargs):
        original(model, *args, **kwargs)
        model.register_comm_hook(None, unchanged)

    ddp.__init__ = initialized
