"""Run `python -m shared.ladder`."""

print("- starting: importing PyTorch", flush=True)  # which takes some seconds

from shared.ladder.command import main

main()
