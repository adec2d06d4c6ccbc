"""Runs `python -m shared.predict`."""

from shared.common.ending import run
from shared.predict.command import main

run(main)
