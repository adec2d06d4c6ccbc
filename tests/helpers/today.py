"""Choice of what is run today, where all days together run everything.

DAY chooses, and a message names it: with that date here, a failure is repeated.
"""

import datetime
import random

DAY = str(datetime.date.today())


def some(name, things, most=3):
    """Return a few of the things, in random order: for each `name` a choice of its own."""
    things = [*things]
    return random.Random(f"{DAY} {name}").sample(things, min(most, len(things)))
