"""Python commands in forks of a process that has imported PyTorch: they start at once.

Usage: python tests/helpers/forks.py N SCRIPT [OPTION...]
Run a script in N forks, as `torchrun --nproc-per-node N` would.
"""

import importlib
import os
import sys

import torch

from shared.lab.records import running
from shared.lab.records.running import PRELOADED


def become(command, folder, out, environment):
    """Turn this process, a fork, into `python COMMAND`.

    Args:
        command: list of words without "python": a script or "-m" and a module, and options.
        folder: working directory.
        out: file for the output.
        environment: all environment variables.
    """
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    torch.set_num_threads(1)
    running.become(command, out)


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    running.side_by_side(int(sys.argv[1]), running.run_python, sys.argv[2:])
