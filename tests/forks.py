"""Python commands in forks of a process that has imported PyTorch: there at once.

Usage: python tests/forks.py N SCRIPT [OPTION...]
That runs a script in N forks, as `torchrun --nproc-per-node N` would.
"""

import importlib
import os
import sys

import torch

from shared.predict.jobs import PRELOADED
from shared.records import running


def become(command, folder, out, environment):
    """Turns this process, a fork, into `python COMMAND`.

    Args:
        command: list of words without "python": a script or "-m" and a module, and options.
        folder: to run in.
        out: file for what it prints.
        environment: all variables.
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
