"""Errors of emulated times against published times."""

import math

NEAR = 0.25  # if nine of ten runs on a card are within it, its emulated times need no range


def error(record):
    """Return the error of an emulated time relative to the published one, positive if too long."""
    return record["time"]["ms"] / record["published_ms"] - 1


def nine_of_ten(errors):
    """Return the absolute error that nine of ten errors do not exceed."""
    sizes = sorted(map(abs, errors))
    return sizes[math.ceil(0.9 * len(sizes)) - 1]
