"""Entry point of `python -m shared.predict`."""

import sys

from shared.predict.own import command as own

if own.is_own(sys.argv[1:]):
    own.main()
else:
    from shared.predict import command  # here, because it imports what an own script need not

    command.main()
