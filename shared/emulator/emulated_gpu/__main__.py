"""Run `python -m emulated_gpu`."""

import sys

from emulated_gpu.command import main

sys.exit(main())
