"""Runs of scripts that are interrupted in the middle."""

import pytest

OFTEN = ["--save-minutes", "1e-9"]  # checkpoints as often as possible


def interrupt(script, options):
    """Run a script until the end of its first epoch, and interrupt it there."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(script.Meter, "validate", stop)
        script.main(options)
