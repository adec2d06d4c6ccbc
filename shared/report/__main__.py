"""Run `python -m shared.report`."""

from shared.report.command import main

main()
