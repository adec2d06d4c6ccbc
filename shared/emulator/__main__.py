"""Run `python -m shared.emulator`."""

import sys

from shared.emulator.command import main

sys.exit(main())
