"""NEEDS skips a test with the reason where no GPU can be emulated."""

import pytest

from emulated_gpu import build


def lacking():
    """Return a line on what this machine lacks to emulate GPUs, or an empty text."""
    try:
        build.library()
    except build.BuildError as error:
        if "/c/" in str(error):  # of the emulator's own files: it is broken, nothing is lacking
            raise
        return str(error)
    return ""


NEEDS = pytest.mark.skipif(bool(lacking()), reason=lacking())
