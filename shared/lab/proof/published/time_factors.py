"""The factors of shared/lab/predict/estimate.py, from published speeds."""

import math
import statistics

import torch

from shared.lab.predict.estimate import estimate

FITTED = ("products", "layout", "memory")  # no published speed here is one of links


def halves(records):
    """Return the records of the source that sets the factors, in halves: each second by name.

    The first half sets the factors, the second shows how right they are.
    """
    speeds = sorted(
        (r for r in records if r["source"].startswith("timm, speeds")), key=lambda r: r["what"]
    )
    # By turns, so that both halves have models of each family.
    return speeds[::2], speeds[1::2]


def factors(records):
    """Return the factors with which estimates come nearest to published times.

    Near means: least squares of the relative error.
    """
    rows = [[r["work_ms"][kind] / r["published_ms"] for kind in FITTED] for r in records]
    # Where an estimate is right, it is 1 times the published time.
    ones = torch.ones(len(rows), 1, dtype=torch.float64)
    fitted = torch.linalg.lstsq(torch.tensor(rows, dtype=torch.float64), ones).solution
    return dict(zip(FITTED, fitted.flatten().tolist()))


def error(record):
    """Return the error of an estimated time relative to the published one."""
    return estimate(record["work_ms"]) / record["published_ms"] - 1


def errors(records):
    """Return how far estimates are from published times, as shares of these, the largest last."""
    return sorted(abs(error(r)) for r in records)


def summary(records):
    """Return the factors and how right they are, as text."""
    fitted, held_out = halves(records)
    numbers = ", ".join(f"{kind} {factor:.2f}" for kind, factor in factors(fitted).items())
    off = errors(held_out)
    median = statistics.median(off)
    most = off[math.ceil(0.9 * len(off)) - 1]  # of nine in ten
    return (
        f"{len(fitted)} published times set the factors: {numbers}. Of {len(held_out)} others, "
        f"the median error is {median:.0%}, nine of ten are within {most:.0%}, all within "
        f"{off[-1]:.0%}."
    )
