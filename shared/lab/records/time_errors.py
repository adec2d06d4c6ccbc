"""Errors of emulated times against published times, and the range that follows for a card."""

import functools
import math

from shared.lab.records import stored

NEAR = 0.25  # if nine of ten runs on a card are within it, its emulated times need no range


def error(record):
    """Return the error of an emulated time relative to the published one, positive if too long."""
    return record["time"]["ms"] / record["published_ms"] - 1


def nine_of_ten(errors):
    """Return the absolute error that nine of ten errors do not exceed."""
    sizes = sorted(map(abs, errors))
    return sizes[math.ceil(0.9 * len(sizes)) - 1]


@functools.cache
def factors(title):
    """Return the least and the largest ratio of real to emulated times of an update on a card.

    It is (1, 1) where the emulated times of published runs are near, or where there are no runs.

    Args:
        title: of the card, as in its data sheet's name: cards.Card.title.
    """
    errors = [
        error(record)
        for record in stored.read(stored.PUBLISHED)
        # An emulated rank that runs alone does not wait for other ranks.
        if record["card"] == title and record["devices"] == 1 and record.get("time")
        if record["published_ms"]
    ]
    if not errors or nine_of_ten(errors) <= NEAR:
        return 1, 1
    # With an error of +25%, the real time is 1 / 1.25 of the emulated time.
    return 1 / (1 + max(0, *errors)), 1 / (1 + min(0, *errors))
