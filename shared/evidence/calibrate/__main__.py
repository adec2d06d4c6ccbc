"""Runs `python -m shared.evidence.calibrate`."""

import contextlib

with contextlib.suppress(OSError):  # run() looks after the next lines
    print("- starting: importing PyTorch", flush=True)  # which takes some seconds

from shared.evidence.calibrate.packages import needed_or_exit

needed_or_exit()  # before anything imports them

from shared.common.ending import run  # noqa: E402
from shared.evidence.calibrate.command import main  # noqa: E402

run(main)
