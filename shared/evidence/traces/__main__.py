"""Run `python -m shared.evidence.traces`."""

import sys

from shared.evidence.traces.command import main

sys.exit(main())
