"""A Python command in a fork of a process that has imported PyTorch: there at once."""

import os

import torch

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
