"""Simulated processes: a script for several runs as the first of them, without the others."""

import os

import torch.distributed as dist
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
