"""The command line of the scripts that teach a model to go on with texts."""

from shared.causal.task import TASK
from shared.common import options
from shared.common.ending import run

__all__ = ["TASK", "parse", "run"]


def parse(file, argv, **meant_for):
    """Parses a script's command line; see shared.common.options.parse.

    Raises:
        UserError: an option is unknown, out of range, or does not fit this script or machine.
    """
    return options.parse(file, argv, TASK, **meant_for)
