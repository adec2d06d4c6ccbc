"""Runs a function or a script in several forks of one process, which imports once what they need.

Usage: python tests/forks.py N SCRIPT [OPTION...]
Runs a script as `torchrun --nproc-per-node N` would.
"""

import importlib
import os
import runpy
import socket
import sys

import torch
from torch.multiprocessing import start_processes


def side_by_side(n, function, *arguments):
    """Calls a function in n processes, which find in the environment what torchrun puts there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "GROUP_RANK": 0}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    rest = ({**sizes, **meeting}, function, arguments)
    start_processes(_call, rest, nprocs=n, start_method="fork")


def _call(rank, variables, function, arguments):
    variables = {**variables, "RANK": rank, "LOCAL_RANK": rank}
    os.environ.update({name: str(value) for name, value in variables.items()})
    # A fork gets a new pool of threads at its first use, which must not be by two threads at once.
    torch.set_num_threads(1)
    function(*arguments)


def _become(command):
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    for name in ("shared.images.cli", "shared.text.cli", "shared.metrics", "lightning.fabric"):
        importlib.import_module(name)
    side_by_side(int(sys.argv[1]), _become, sys.argv[2:])
