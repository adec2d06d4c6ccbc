"""Run `python -m shared.evidence.published`."""

from shared.evidence.published.command import main

if __name__ == "__main__":
    main()
