"""Runs `python -m shared.published`."""

from shared.common.ending import run
from shared.published.command import main

if __name__ == "__main__":
    run(main)
