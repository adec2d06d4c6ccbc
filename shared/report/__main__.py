"""Runs `python -m shared.report`."""

from shared.cli import run
from shared.report.command import main

run(main)
