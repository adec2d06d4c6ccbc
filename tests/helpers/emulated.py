"""NEEDS skips a test with the reason where no GPU can be emulated; NO_COMPILER makes it so."""

import pytest

from emulated_gpu import build

NEEDS = pytest.mark.skipif(bool(build.lacking()), reason=build.lacking())
NO_COMPILER = {"PATH": "/nowhere", "CC": "no-compiler"}  # environment variables
