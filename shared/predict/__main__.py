"""Runs `python -m shared.predict`."""

from shared.cli import run
from shared.predict.command import main

run(main)
