"""Entry point of `python -m shared.predict`."""

import sys

from shared.predict import own_script

if __name__ == "__main__":  # forks.py imports it, too
    if own_script.is_own(sys.argv[1:]):
        own_script.main()
    else:
        from shared.predict import command  # here: it imports what an own script need not

        command.main()
