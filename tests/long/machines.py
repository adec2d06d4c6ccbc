"""Runs torchrun as often as its --nnodes says, as srun does in a SLURM job on so many machines.

Usage: python tests/long/machines.py [OPTION...] SCRIPT [OPTION...]
All of the machines are this one. Processes are forks of one that has imported what they need.
"""

import os
import runpy
import sys

import lightning.fabric  # noqa: F401  for the script
import torch
from torch.distributed import run as torchrun
from torch.distributed.launcher.api import elastic_launch
from torch.multiprocessing import start_processes

from shared.images import cli  # noqa: F401  for the script


def of_slurm(machines, machine):
    """Returns what srun puts into the environment of the task on one of some machines.

    Source: https://slurm.schedmd.com/srun.html
    """
    job = {"SLURM_JOB_ID": 4711, "SLURM_JOB_NAME": "fsdp", "SLURM_CPUS_PER_TASK": 16}
    job |= {"SLURM_NNODES": machines, "SLURM_NTASKS": machines}
    return {**job, "SLURM_PROCID": machine, "SLURM_NODEID": machine, "SLURM_LOCALID": 0}


def one_machine(machine, options):
    """Does what torchrun does on one machine, with the script in forks."""
    slurm = of_slurm(int(options.nnodes), machine)
    os.environ.update({name: str(value) for name, value in slurm.items()})
    options.start_method = "fork"
    config, _, _ = torchrun.config_from_args(options)
    elastic_launch(config, one_process)([options.training_script, *options.training_script_args])


def one_process(command):
    """Runs the script in a fork of its own: what torchrun starts must return, but scripts end."""
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # a new pool of threads must not be made by two threads at once
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
        os._exit(0)  # a script that fails has ended before
    assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    options = torchrun.parse_args(sys.argv[1:])
    n = int(options.nnodes)
    start_processes(one_machine, (options,), nprocs=n, start_method="fork")
