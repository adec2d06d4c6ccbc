"""What a prediction returns, of this repository's scripts and of a script of the user's."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The records of a prediction, and what belongs to them."""

    records: list
    moments: list  # what history.condensed() returned, for pictures
    details: Callable  # returns lines to print below the tables, for the records of one model
    failed: Exception | None = None  # some runs failed; the records are those of the others
