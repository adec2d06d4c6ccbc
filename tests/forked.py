"""A Python command in a fork of a process that has imported PyTorch: there at once."""

import multiprocessing
import os
import runpy
import sys

import torch


def become(command, folder, out, environment):
    """Turns this process, a fork, into `python COMMAND`.

    Args:
        command: list of words without "python": a script or "-m" and a module, and options.
        folder: to run in.
        out: file for what it prints.
        environment: all variables.
    """
    os.setsid()
    written = os.open(out, os.O_WRONLY | os.O_APPEND)
    for standard in (sys.stdout, sys.stderr):
        os.dup2(written, standard.fileno())
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    torch.set_num_threads(1)
    multiprocessing.set_start_method(None, force=True)  # as Python starts, for loaders' workers
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, os.path.dirname(os.path.abspath(command[0])))
        runpy.run_path(command[0], run_name="__main__")
