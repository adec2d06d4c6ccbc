"""Runs `python -m shared.lessons`."""

from shared.common.ending import run
from shared.lessons.pages import main

run(main)
