"""Runs a script in several forks of one process, as `torchrun --nproc-per-node N` would.

Usage: python tests/forks.py N SCRIPT [OPTION...]
"""

import importlib
import sys

from shared.predict.jobs import PRELOADED
from shared.records.running import run_python, side_by_side

if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    side_by_side(int(sys.argv[1]), run_python, sys.argv[2:])
