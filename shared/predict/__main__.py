"""Runs `python -m shared.predict`."""

from shared.predict.command import main

main()
