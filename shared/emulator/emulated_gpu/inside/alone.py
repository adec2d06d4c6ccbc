"""One process as one rank of many: the other ranks count as copies of it.

NCCL's functions, in C, use the data of this rank in place of the data of each other rank.
Collectives on the host use PyTorch's own "fake" backend, which does the same. This module replaces
the functions of torch.distributed that would wait for a message of another rank.
"""

import contextlib
import math
import os
import sys

import torch
import torch.distributed as dist

from emulated_gpu.imports import once_imported, replace_everywhere
from emulated_gpu.inside import library

# The module, and the functions in it that the methods of Alone with the same names replace. PyTorch
# before 2.4 has no split_group().
OWNER = "torch.distributed.distributed_c10d"
REPLACED = ("init_process_group", "new_group", "split_group")
REPLACED += ("broadcast_object_list", "send_object_list", "recv_object_list")
ID_BYTES = 128  # of ncclUniqueId, by which the ranks of a communicator find each other


def begin():
    """Replace the functions of this process that would wait for other ranks."""
    if not dist.is_available():
        return
    alone = Alone(sys.modules[OWNER])
    for name, original in alone.originals.items():
        replace_everywhere(name, original, getattr(alone, name))
    # A barrier of gloo that reports the ranks which do not arrive; no rank can arrive here.
    dist.ProcessGroup.monitored_barrier = lambda *_, **__: None
    once_imported("torch.distributed.pipelining.stage", _replace_messages_of_stages)
    once_imported("torch.distributed._symmetric_memory", _replace_rendezvous)


class Store(dist.Store):
    """A rendezvous store for one process: it waits for no rank.

    Keys that other ranks would have set have placeholder bytes, as many as NCCL's unique id has.
    """

    def __init__(self):
        super().__init__()
        self.values = {}

    def set(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values.get(key, bytes(ID_BYTES))

    def add(self, key, amount):
        total = int(self.values.get(key, 0)) + amount
        self.values[key] = str(total).encode()
        return total

    def check(self, keys):
        return all(key in self.values for key in keys)

    def wait(self, keys, timeout=None):
        pass


class Alone:
    """Functions of torch.distributed for a single rank; their arguments are PyTorch's."""

    def __init__(self, module):
        """Take the originals from a module, and the rank from torchrun's variables."""
        self.originals = {name: getattr(module, name) for name in REPLACED if hasattr(module, name)}
        self.rank = int(os.environ["RANK"])
        self.store = Store()  # as an attribute, since PyTorch keeps only its part in C++
        self.sent_objects = []

    def init_process_group(self, backend=None, *args, timeout=None, **kwargs):
        """Start the default group with a store that waits for no rank, and "fake" for gloo."""
        import torch.testing._internal.distributed.fake_pg  # noqa: F401, which registers "fake"

        options = {"rank": self.rank, "world_size": int(os.environ["WORLD_SIZE"])}
        if timeout:
            options["timeout"] = timeout
        # Only what was asked for: with NCCL alone, weights on the host are sharded through the GPU,
        # as on rank 0 of several. None stands for both.
        backend = backend or "cpu:gloo,cuda:nccl"
        for on_host in ("gloo", "mpi"):
            backend = backend.replace(on_host, "fake")
        # Rank 0 makes the unique ids itself, so a real store has all keys that it reads.
        options["store"] = self.store if self.rank else dist.HashStore()
        return self.originals["init_process_group"](backend, **options)

    def new_group(self, ranks=None, *args, backend=None, **kwargs):
        """Return a group of this rank and copies of it."""
        if backend in ("gloo", "mpi"):
            backend = "fake"
        size = 0 if ranks is None else len(ranks)
        with _split_size(size):
            return self.originals["new_group"](ranks, *args, backend=backend, **kwargs)

    def split_group(self, parent_pg=None, split_ranks=None, *args, **kwargs):
        """Return the part of a group that this rank belongs to, with copies of it."""
        groups = (ranks for ranks in split_ranks or () if self.rank in ranks)
        with _split_size(len(next(groups, ()))):
            return self.originals["split_group"](parent_pg, split_ranks, *args, **kwargs)

    def broadcast_object_list(self, object_list, *args, **kwargs):
        """Leave the objects as they are: the sender, a copy of this rank, has the same."""

    def send_object_list(self, object_list, *args, **kwargs):
        """Keep the objects for recv_object_list()."""
        self.sent_objects[:] = object_list

    def recv_object_list(self, object_list, *args, **kwargs):
        """Receive the objects that this rank has sent last, as its copies have sent the same."""
        if not self.sent_objects:
            return self.originals["recv_object_list"](object_list, *args, **kwargs)
        object_list[:] = self.sent_objects
        return 0  # the rank of the sender


@contextlib.contextmanager
def _split_size(ranks):
    """Give NCCL the number of ranks in a communicator that is split off; 0 stands for all.

    NCCL counts the ranks that ask for the same color, and here only this one asks.
    """
    library.set_split_ranks(ranks)
    try:
        yield
    finally:
        library.set_split_ranks(0)


def _replace_messages_of_stages(module):
    """Let pipeline stages take shapes from this rank, in place of messages of other ranks.

    A stage gets the output shapes of the stage before it on this rank. Gradients have the shapes of
    outputs.

    Args:
        module: torch.distributed.pipelining.stage. Older versions of PyTorch send no such messages.
    """
    if not hasattr(module, "_StageBackwardMeta"):
        return
    sent = []

    # The ranks vote whether they know all shapes. The copies of this rank vote as it does.
    def vote_on_shapes(stage, has_backward, received_acc=None):
        is_static = not module.InferenceMode.needs_dynamic(stage._user_meta, has_backward)
        return torch.tensor([int(is_static)])

    def result_of_vote(stage, received_result=None):
        return vote_on_shapes(stage, stage.has_backward)

    def send(stage, meta, destination):
        sent.append(meta)

    def receive(stage, source):
        # A stage before this one sends its outputs' shapes, one after it those of gradients.
        if source < stage.stage_index:
            return next(m for m in reversed(sent) if isinstance(m, module._StageForwardMeta))
        gradients = module._derive_grad_metas(stage._stage_meta.outputs)
        return module._StageBackwardMeta(backward_metas=gradients)

    replacements = {
        "_send_meta": send,
        "_recv_meta": receive,
        "_warmup_forward_vote": vote_on_shapes,
        "_warmup_backward_result": result_of_vote,
    }
    # Some of these methods are defined, or overridden, in subclasses.
    base = module._PipelineStageBase
    for cls in (base, *base.__subclasses__()):
        for name in replacements.keys() & vars(cls):
            setattr(cls, name, replacements[name])


class SharedBuffer:
    """A symmetric memory buffer, which ranks read from each other; here all are this rank's own.

    It has those methods of torch._C._distributed_c10d._SymmetricMemory that PyTorch's operations
    in Python call.
    """

    def __init__(self, tensor, group):
        self.rank = 0
        self.world_size = dist.distributed_c10d._resolve_process_group(group).size()
        self._bytes = tensor.view(-1).view(torch.uint8)

    def get_buffer(self, rank, sizes, dtype, storage_offset=0):
        """Return a tensor of this shape and type; the offset is in elements."""
        start = storage_offset * dtype.itemsize
        end = start + math.prod(sizes) * dtype.itemsize
        return self._bytes[start:end].view(dtype).view(sizes)

    def barrier(self, channel=0, timeout_ms=0):
        pass

    def put_signal(self, rank, channel=0, timeout_ms=0):
        pass

    def wait_signal(self, rank, channel=0, timeout_ms=0):
        pass


class Rendezvous:
    """The functions that allocate symmetric memory, and that find the memory of other ranks."""

    def __init__(self, allocate):
        self._allocate = allocate
        self._groups = {}  # address -> name of the group that it was allocated for

    def empty_strided_p2p(self, size, stride, dtype, device, group_name=None, alloc_id=None):
        """Allocate a tensor, and note the group that it is for."""
        tensor = self._allocate(size, stride, dtype, device, group_name, alloc_id)
        self._groups[tensor.data_ptr()] = group_name
        return tensor

    def rendezvous(self, tensor, group_name=None):
        """Return the SharedBuffer of a tensor."""
        return SharedBuffer(tensor, group_name or self._groups[tensor.data_ptr()])


def _replace_rendezvous(module):
    """Let symmetric memory, which is outside of PyTorch's allocator, wait for no rank.

    Args:
        module: torch.distributed._symmetric_memory.
    """
    owner = module._SymmetricMemory
    replacement = Rendezvous(owner.empty_strided_p2p)
    for name in ("empty_strided_p2p", "rendezvous"):
        method = getattr(replacement, name)
        setattr(owner, name, staticmethod(method))
