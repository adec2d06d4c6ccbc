"""The laboratory behind the stages: it measures, predicts, keeps records and fills pages.

It imports what stages import, never the other way round, and the package emulated_gpu.
"""

import sys
from pathlib import Path

# As in shared/record.py, whose imports environments with an older PyTorch need not have.
ROOT = Path(__file__).resolve().parents[2]
# The emulator of this checkout, also where another checkout's is installed, or none.
EMULATOR = ROOT / "shared" / "emulator"
sys.path.insert(0, str(EMULATOR))
