"""Runs `python -m shared.ladder`."""

import contextlib

with contextlib.suppress(OSError):  # run() looks after the next lines
    print("- starting: importing PyTorch", flush=True)  # which takes some seconds

from shared.cli import run
from shared.ladder.command import main

run(main)
