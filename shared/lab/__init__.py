"""The laboratory around the stages: it measures, predicts, keeps records and fills pages.

It imports the modules that stages import, and the package emulated_gpu; stages never import it.
"""

import sys
from pathlib import Path

# The emulator of this checkout, also where another checkout's is installed, or none. Not by
# shared/run/record.py, whose imports an environment with an older PyTorch need not have.
EMULATOR = Path(__file__).resolve().parents[1] / "emulator"
sys.path.insert(0, str(EMULATOR))
