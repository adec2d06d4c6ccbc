"""Runs `python -m shared.lessons`."""

from shared.cli import run
from shared.lessons.pages import main

run(main)
