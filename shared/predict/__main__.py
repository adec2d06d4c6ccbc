"""Entry point of `python -m shared.predict`."""

import sys

from shared.predict import command
from shared.predict.own import command as own

(own if own.is_own(sys.argv[1:]) else command).main()
