"""Pretend processes: a script that wants several is the first of them here, and the others do not exist."""

import os

import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg


def pretend_processes(n, device):
    """Makes this process the first of n, in the way torchrun would; the others do not exist.

    Args:
        n: number of processes.
        device: type of the device that they send each other tensors of, "cpu" or that of shared/simulated_gpu.py.
    """
    started_by_torchrun = {"RANK": 0, "LOCAL_RANK": 0, "GROUP_RANK": 0, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    os.environ.update({name: str(value) for name, value in started_by_torchrun.items()})
    backend = "fake"  # sends nothing, returns at once
    if device != "cpu":  # as NCCL, for this device alone: the one called "fake" would serve the CPU too
        backend = "fake_nccl"
        dist.Backend.register_backend(backend, fake_pg._create_fake_pg, extended_api=True, devices=[device])
    dist.init_process_group(backend, rank=0, world_size=n, store=fake_pg.FakeStore())
    dist.init_process_group = lambda backend: None  # for scripts that do it themselves
