"""Run `python -m shared.lessons.fit`."""

import sys

if __name__ == "__main__":  # forks.py imports it, too
    from shared.lessons.fit.command import main

    sys.exit(main())
