"""Simulated processes: a script for several runs as rank 0, without the other ranks."""

import os

import torch
import torch.distributed as dist
from lightning.fabric.strategies import DDPStrategy
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import _state_dict_utils
from torch.distributed.fsdp import _init_utils
from torch.distributed.fsdp._fully_shard import _fsdp_init
from torch.testing._internal.distributed import fake_pg


def pretend_processes(n, device):
    """Make this process rank 0 of n, as torchrun would, once; the other ranks do not exist.

    The tensors that they exchange are on one type of device, "cpu" or that of gpu.py.
    """
    if dist.is_initialized():
        return
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0")
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(n))
    os.environ.update(**ranks, **sizes, MASTER_ADDR="localhost", MASTER_PORT="1")
    os.environ["TORCHELASTIC_RUN_ID"] = "none"
    backend = "fake"  # sends nothing, returns at once
    if device != "cpu":
        # For this device alone, like NCCL. The backend named "fake" would serve the CPU, too.
        backend = "fake_nccl"
        dist.Backend.register_backend(
            backend, fake_pg._create_fake_pg, extended_api=True, devices=[device]
        )
    dist.init_process_group(backend, rank=0, world_size=n, store=fake_pg.FakeStore())
    dist.init_process_group = lambda *_, **__: None  # for scripts that call it themselves
    _fsdp_init._move_states_to_device = _moved
    _init_utils._move_states_to_device = _moved  # of FSDP1
    # DDP would check that all processes have the same model, by reading values of tensors, which
    # fake tensors do not have.
    dist._verify_params_across_processes = lambda *_: None
    # In its first update, DDP has one bucket for all gradients; then it makes smaller ones, in the
    # order in which gradients arrived. Here, it has the small ones from the beginning.
    dist.Reducer._rebuild_buckets = lambda reducer: False
    buckets = [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * 2**20]
    assign = dist._compute_bucket_assignment_by_size
    dist._compute_bucket_assignment_by_size = lambda ts, _, *more: assign(ts, buckets, *more)
    # It would measure times, and warn that it cannot on this device.
    dist.Logger.set_runtime_stats_and_log = lambda logger: None
    # Otherwise Fabric would create a CUDA stream.
    DDPStrategy._determine_ddp_device_ids = lambda strategy: None


def _moved(params, buffers, device):
    """Move what is to be sharded to the device; FSDP sets `data`, which fake tensors refuse."""
    for t in (*params, *buffers):
        if t.device.type not in (device.type, "meta"):
            moved = t.detach().to(device)
            if isinstance(t, torch.nn.Parameter):
                moved = torch.nn.Parameter(moved, t.requires_grad)
            torch.utils.swap_tensors(t, moved)


# A device mesh, and the rows of a weight in a shard, are computed with small tensors whose values
# are then read. Without this, creating a mesh and loading a sharded model would fail.
def _with_real_tensors(original, *args, **kwargs):
    with unset_fake_temporarily():
        return original(*args, **kwargs)


# Rank 0 has the file. Other ranks, if any, receive its tensors into memory of their own, and may
# need more for it. Here, rank 0 does so, too. Without this, loading on a CPU would be predicted for
# the process that needs least.
def _receiving(original, full_state, local_state, keys, device, group=None):
    with torch.device(dist.group.WORLD._device_types[0]):
        received = {}
        for key in keys if dist.get_world_size() > 1 else ():
            full = full_state[key]
            received[key] = torch.empty(full.shape, dtype=full.dtype)
    return original({**full_state, **received}, local_state, keys, device, group)


# Further replacements made by gpu.tensors_without_memory(): (owner, name, wrapper).
REPLACED = (
    # Rank 0 announces to the others what it will send, serialized as the data of a tensor, which
    # fake tensors do not have. Without this, loading a sharded model would fail.
    (dist, "broadcast_object_list", lambda original, *args, **kwargs: None),
    (dist, "init_device_mesh", _with_real_tensors),
    (_state_dict_utils, "compute_local_shape_and_global_offset", _with_real_tensors),
    (_state_dict_utils, "_broadcast_tensors", _receiving),
)
