"""Errors that the user can correct: one line that says what would be right, and exit code 2."""

import argparse
import contextlib
import errno
import os
import sys
import time
from pathlib import Path


class UserError(ValueError):
    """An error that the user can correct, with a message of one line that says how."""


def is_first():
    """Return whether this process is the first of the run, or alone."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def install():
    """Let explain() handle uncaught exceptions, instead of Python's traceback."""
    sys.excepthook = explain


def explain(kind, error, trace):
    """End the program after an exception, with one line if the user can correct the error.

    The exit code is 2 for such an error, 130 for Ctrl-C and 1 otherwise. The arguments are those
    of sys.excepthook.
    """
    code, text = verdict(kind, error)
    if not is_first():
        time.sleep(2)  # rank 0 reports an error that all ranks have, and ends the other ranks
    with contextlib.suppress(OSError):  # of a full disk, which is the error then
        sys.stdout.flush()
    sys.stderr = sys.__stderr__  # PyTorch calls this with a buffer, and prints it afterwards
    if text:
        program = Path(sys.argv[0]).name.split()[-1]  # ladder, of "python -m shared ladder"
        print(f"\n{program}: {text}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)
    os._exit(code)  # a regular exit would wait for processes that no longer respond


def verdict(kind, error):
    """Return the exit code for an exception, and a line for the user, or None for a traceback."""
    if kind is KeyboardInterrupt:
        return 130, "interrupted"
    if issubclass(kind, OSError) and error.filename:
        return 2, f"{error.filename}: {error.strerror}"
    if issubclass(kind, OSError) and error.errno == errno.ENOSPC:
        return 2, "the disk of the output is full"
    memory = getattr(sys.modules.get("torch"), "OutOfMemoryError", UserError)  # if imported
    if issubclass(kind, (UserError, argparse.ArgumentTypeError, memory)):
        # An error in a DataLoader worker has the worker's traceback before its message.
        return 2, str(error).strip().splitlines()[-1].split("UserError: ")[-1]
    return 1, None
