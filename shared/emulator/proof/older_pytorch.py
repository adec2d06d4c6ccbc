"""Run a script under a PyTorch that is older than this repository needs: for its counters only.

    python -m emulated_gpu older_pytorch.py SCRIPT [ITS OPTION...]

The script ends after a few updates, as with `emulated-gpu why`.
"""

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils import _pytree

UPDATES = 3
# Names that the runner of scripts needs, with their equivalents before the version in the comment.
NAMES = [
    (_pytree, "tree_leaves", lambda tree: _pytree.tree_flatten(tree)[0]),  # 2.2
    (torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError),  # 2.5
    (torch.compiler, "is_compiling", lambda: False),  # 2.3
]


class Unwatched:
    """A stand-in for why.watch.Watch, which needs a newer PyTorch; it observes nothing."""

    def __init__(self, line):
        self.building = self.has_changed = False
        self.places = ()
        self.inputs = ()
        self.weights = ()
        self.cost = SimpleNamespace(start=lambda: None, totals=lambda: None, operations=())

    def note_group(self, group):
        pass

    def begin_training(self, in_backward):
        self.building = False

    def place(self):
        pass

    def is_between_modules(self):
        return True

    def at_work(self):
        return contextlib.nullcontext()


def main(script, *argv):
    # A version that has the name keeps its own.
    for owner, name, old in NAMES:
        if not hasattr(owner, name):
            setattr(owner, name, old)
    # The watch needs a newer PyTorch, and counters need no watch.
    sys.modules["emulated_gpu.why.watch"] = SimpleNamespace(Watch=Unwatched, IS_TOLD=True)
    from emulated_gpu.why.script import Run

    file = Path(script).resolve()
    os.chdir(file.parent)
    error = Run(file, UPDATES).run(argv)
    if error:
        raise error


if __name__ == "__main__":
    main(*sys.argv[1:])
