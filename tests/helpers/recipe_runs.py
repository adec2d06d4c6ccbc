"""Runs of own_recipe.py, in processes of their own."""

import re

from conftest import ROOT, run

RECIPE = ROOT / "tests" / "helpers" / "own_recipe.py"


def trained(folder, n, epochs, *more, code=0):
    """Train on n processes of this machine; return the losses and the norms of all updates."""
    return seen(run(RECIPE, n, epochs, *more, cwd=folder, code=code))


def seen(printed):
    """Return the losses and the norms that a run has printed."""
    return [
        [float(value) for value in re.findall(rf"^{what} (\S+)$", printed, re.MULTILINE)]
        for what in ("loss", "norm")
    ]
