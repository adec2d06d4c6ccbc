"""How far emulated times are from published ones, and what that says of a card."""

import functools
import math

from shared.lab.records import stored

NEAR = 0.25  # nine of ten runs on a card within it: then its emulated times are said as they are


def error(record):
    """Return the error of an emulated time relative to the published one, positive if too long."""
    return record["time"]["ms"] / record["published_ms"] - 1


def nine_of_ten(errors):
    """Return the error, without sign, within which nine of ten are."""
    sizes = sorted(map(abs, errors))
    return sizes[math.ceil(0.9 * len(sizes)) - 1]


@functools.cache
def factors(title):
    """Return how many times the emulated time of an update takes on a card, at least and at most.

    (1, 1) where published runs on it are near, or where there are none.

    Args:
        title: of the card, as in its data sheet's name: cards.Card.title.
    """
    errors = [
        error(record)
        for record in stored.read(stored.PUBLISHED)
        # What several GPUs wait for is not known to one that runs alone.
        if record["card"] == title and record["devices"] == 1 and record.get("time")
        if record["published_ms"]
    ]
    if not errors or nine_of_ten(errors) <= NEAR:
        return 1, 1
    return 1 / (1 + max(0, *errors)), 1 / (1 + min(0, *errors))
