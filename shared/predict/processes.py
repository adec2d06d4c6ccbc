"""Simulated processes: a script for several runs as the first of them, without the others."""

import os

import torch
import torch.distributed as dist
from lightning.fabric.strategies import DDPStrategy
from torch.distributed.fsdp._fully_shard import _fsdp_init
from torch.testing._internal.distributed import fake_pg


def pretend_processes(n, device):
    """Makes this process the first of n, as torchrun would, once; the others do not exist.

    Args:
        n: number of processes.
        device: type of the device whose tensors they exchange, "cpu" or that of
            shared/predict/gpu.py.
    """
    if dist.is_initialized():
        return
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0")
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(n))
    os.environ.update(**ranks, **sizes, MASTER_ADDR="localhost", MASTER_PORT="1")
    os.environ["TORCHELASTIC_RUN_ID"] = "none"
    backend = "fake"  # sends nothing, returns at once
    if device != "cpu":
        # For this device alone, as NCCL is. The backend named "fake" would serve the CPU too.
        backend = "fake_nccl"
        dist.Backend.register_backend(
            backend, fake_pg._create_fake_pg, extended_api=True, devices=[device]
        )
    dist.init_process_group(backend, rank=0, world_size=n, store=fake_pg.FakeStore())
    dist.init_process_group = lambda backend: None  # for scripts that call it themselves
    _without_numbers()
    _fsdp_init._move_states_to_device = _moved


def _moved(params, buffers, device):
    """Moves what is to be sharded to the device, as FSDP does with data that can be set."""
    for t in (*params, *buffers):
        if t.device.type not in (device.type, "meta"):
            moved = t.detach().to(device)
            if isinstance(t, torch.nn.Parameter):
                moved = torch.nn.Parameter(moved, t.requires_grad)
            torch.utils.swap_tensors(t, moved)


def _without_numbers():
    """Lets DDP do without what it reads from tensors, and from the other processes.

    In its first update DDP has one bucket for all gradients; then it makes smaller ones, in the
    order in which gradients came. Here it has the small ones from the beginning.
    """
    # Whether all processes have the same model.
    dist._verify_params_across_processes = lambda *_: None
    dist.Reducer._rebuild_buckets = lambda reducer: False
    sizes = [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * 2**20]
    assign = dist._compute_bucket_assignment_by_size
    dist._compute_bucket_assignment_by_size = lambda tensors, _, *more: assign(
        tensors, sizes, *more
    )
    # It measures times, and warns that it cannot on this device.
    dist.Logger.set_runtime_stats_and_log = lambda logger: None
    # Else Fabric makes a stream of CUDA.
    DDPStrategy._determine_ddp_device_ids = lambda strategy: None
