"""One process as one rank of many: the other ranks are taken to be copies of it.

NCCL's functions, in C, copy what this rank sends into the place of each other one. Collectives on
the host go over PyTorch's own "fake" backend, which does the same.
"""

import contextlib
import ctypes
import math
import os
import sys

import torch
import torch.distributed as dist
from sitecustomize import once_imported


class Store(dist.Store):
    """What the ranks tell each other at the start, where no other one tells anything."""

    def __init__(self):
        super().__init__()
        self.told = {}

    def set(self, key, value):
        self.told[key] = value

    def get(self, key):
        return self.told.get(key, bytes(128))  # as large as NCCL's name of a communicator

    def add(self, key, amount):
        self.told[key] = str(int(self.told.get(key, 0)) + amount).encode()
        return int(self.told[key])

    def check(self, keys):
        return all(key in self.told for key in keys)

    def wait(self, keys, timeout=None):
        pass


def begin():
    """Let init_process_group() wait for nobody."""
    if not dist.is_available():
        return
    module = torch.distributed.distributed_c10d
    initialize, rank = module.init_process_group, int(os.environ["RANK"])
    answers = Store()  # kept here: PyTorch keeps only its part in C++

    def init_process_group(backend=None, *args, timeout=None, **kwargs):
        import torch.testing._internal.distributed.fake_pg  # noqa: F401, which registers "fake"

        alone = {"rank": rank, "world_size": int(os.environ["WORLD_SIZE"])}
        kept = {"timeout": timeout} if timeout else {}
        backend = (backend or "cpu:gloo,cuda:nccl").replace("gloo", "fake").replace("mpi", "fake")
        store = answers if rank else dist.HashStore()  # rank 0 waits for nobody
        return initialize(backend, store=store, **alone, **kept)

    def broadcast_object_list(object_list, *args, **kwargs):
        pass  # the sender is a copy of this rank, and has the same objects

    def new_group(ranks=None, *args, backend=None, **kwargs):
        with _splitting(len(ranks) if ranks is not None else 0):
            return new(ranks, *args, backend=_alone(backend), **kwargs)

    def split_group(parent_pg=None, split_ranks=None, *args, **kwargs):
        its = next((ranks for ranks in split_ranks or () if rank in ranks), ())
        with _splitting(len(its)):
            return split(parent_pg, split_ranks, *args, **kwargs)

    def send_object_list(objects, *args, **kwargs):
        sent[:] = objects

    def recv_object_list(objects, *args, **kwargs):
        if not sent:
            return receive(objects, *args, **kwargs)
        objects[:] = sent
        return 0

    sent, send, receive = [], module.send_object_list, module.recv_object_list
    new, split = module.new_group, getattr(module, "split_group", None)
    pairs = [(initialize, init_process_group), (new, new_group)]
    pairs += [(send, send_object_list), (receive, recv_object_list)]
    pairs += [(split, split_group)] if split else []
    pairs += [(module.broadcast_object_list, broadcast_object_list)]
    for original, own in pairs:
        for other in [*sys.modules.values()]:  # some have imported it by name
            if vars(other).get(own.__name__) is original:
                setattr(other, own.__name__, own)
    # gloo's alone; nobody is late.
    dist.ProcessGroup.monitored_barrier = lambda *_, **__: None
    once_imported("torch.distributed.pipelining.stage", _pipeline)
    once_imported("torch.distributed._symmetric_memory", _symmetric)


@contextlib.contextmanager
def _splitting(ranks):
    """Tell NCCL how many ranks a communicator has that is split off: the others do not."""
    ctypes.CDLL(None).emulator_split(ranks)
    try:
        yield
    finally:
        ctypes.CDLL(None).emulator_split(0)


def _pipeline(module):
    """Let stages of a pipeline tell themselves the shapes that the other ranks' would tell them.

    A stage takes what the one before it on this rank returns, and gradients are like outputs.
    """
    base, sent = module._PipelineStageBase, []
    if not hasattr(module, "_StageBackwardMeta"):
        return

    def vote(stage, has_backward, received_acc=None):  # whether the shapes are known
        known = not module.InferenceMode.needs_dynamic(stage._user_meta, has_backward)
        return torch.tensor([int(known)])

    def result(stage, received_result=None):
        return vote(stage, stage.has_backward)

    def send(stage, meta, to):
        sent.append(meta)

    def receive(stage, source):
        if source < stage.stage_index:
            return next(m for m in reversed(sent) if isinstance(m, module._StageForwardMeta))
        grads = module._derive_grad_metas(stage._stage_meta.outputs)
        return module._StageBackwardMeta(backward_metas=grads)

    own_methods = {"_send_meta": send, "_recv_meta": receive}
    own_methods |= {"_warmup_forward_vote": vote, "_warmup_backward_result": result}
    for cls in (base, *base.__subclasses__()):
        for name, own in own_methods.items():
            if name in vars(cls):
                setattr(cls, name, own)


class Shared:
    """Memory that ranks read from each other; that of the others is this rank's own."""

    def __init__(self, tensor, group):
        self.rank, self.world_size = 0, dist.distributed_c10d._resolve_process_group(group).size()
        self._bytes = tensor.view(-1).view(torch.uint8)

    def get_buffer(self, rank, sizes, dtype, storage_offset=0):
        start = storage_offset * dtype.itemsize
        size = math.prod(sizes) * dtype.itemsize
        return self._bytes[start : start + size].view(dtype).view(sizes)

    def barrier(self, channel=0, timeout_ms=0):
        pass

    def put_signal(self, rank, channel=0, timeout_ms=0):
        pass

    wait_signal = put_signal


def _symmetric(module):
    """Let symmetric memory, which is outside of PyTorch's allocator, wait for nobody."""
    real, groups = module._SymmetricMemory, {}
    allocate = real.empty_strided_p2p

    def empty_strided_p2p(size, stride, dtype, device, group_name=None, alloc_id=None):
        tensor = allocate(size, stride, dtype, device, group_name, alloc_id)
        groups[tensor.data_ptr()] = group_name
        return tensor

    def rendezvous(tensor, group_name=None):
        return Shared(tensor, group_name or groups[tensor.data_ptr()])

    real.empty_strided_p2p, real.rendezvous = map(staticmethod, (empty_strided_p2p, rendezvous))


def _alone(backend):
    return "fake" if backend in ("gloo", "mpi", "fake") else backend
