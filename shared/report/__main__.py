"""Runs `python -m shared.report`."""

from shared.common.ending import run
from shared.report.command import main

run(main)
