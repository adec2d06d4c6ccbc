"""NEEDS skips a test with the reason where no GPU can be emulated."""

import pytest

from emulated_gpu import build

NEEDS = pytest.mark.skipif(bool(build.lacking()), reason=build.lacking())
