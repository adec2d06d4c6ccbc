"""The command predict: one module for the repository's scripts, one for those of others."""

import sys

from shared.lab.predict import own_script


def main():
    if own_script.is_own(sys.argv[1:]):
        return own_script.main()
    from shared.lab.predict import command  # here: it imports what an own script need not

    return command.main()
