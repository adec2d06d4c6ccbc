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
    """The same without tables and pictures."""
    wanted = Wanted(*args, **sizes)
    return by_script(run_jobs([(simulation.predict, name, wanted) for name in names]))


def near(figure, same):
    """Returns what an allocated peak must equal: a stored one, which another version made.

    Args:
        figure: in GB.
        same: whether it was made with the versions that are installed; see versions.made_here().
            Else cuBLAS may keep its workspaces, or not.
    """
    return pytest.approx(figure, rel=1e-9, abs=1e-9 if same else KEPT_GB)
