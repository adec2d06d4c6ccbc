"""Predictions for tests, in forks of this process, which start faster than a new Python."""

import pytest
from versions import KEPT_GB

from shared.predict import command, simulation
from shared.predict.jobs import Wanted, run_jobs
from shared.records.views import by_script


def predicted(*argv):
    """Run the predictor's command in forks of this process: {script: record}."""
    return by_script(command.main([*map(str, argv)]))


def simulated(names, *args, **sizes):
    """Return the predictions of scripts for a Wanted of these arguments, {script: record}."""
    wanted = Wanted(*args, **sizes)
    return by_script(run_jobs([(simulation.predict, name, wanted) for name in names]))


def near(figure, same):
    """Return the expected allocated peak in GB, given one of the same versions or of others.

    Other versions may or may not keep the workspaces of cuBLAS.
    """
    return pytest.approx(figure, rel=1e-9, abs=1e-9 if same else KEPT_GB)
