"""Run `python -m shared.evidence.calibrate`."""

from shared.evidence.calibrate.command import main

if __name__ == "__main__":
    main()
