"""Predictions for tests, in processes that start from this one: faster than a new Python."""

import pytest
from versions import KEPT_GB

from shared.predict import command, simulation
from shared.predict.jobs import Wanted, run_jobs
from shared.records.views import by_script


def predicted(*argv):
    """Runs the command in processes that start from this one: {script: record}."""
    return by_script(command.main([*map(str, argv)]))


def simulated(names, *args, **sizes):
    """Returns the predictions of scripts as a Wanted of these arguments, {script: record}."""
    wanted = Wanted(*args, **sizes)
    return by_script(run_jobs([(simulation.predict, name, wanted) for name in names]))


def near(figure, same):
    """Returns what an allocated peak in GB must equal: one that the same versions made, or others.

    Under others, cuBLAS may keep its workspaces, or not.
    """
    return pytest.approx(figure, rel=1e-9, abs=1e-9 if same else KEPT_GB)
