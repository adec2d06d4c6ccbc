"""The result of a prediction, for scripts of this repository and for a user's script."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The records of a prediction, with details to print, and an error, if any."""

    records: list
    details: Callable  # returns lines to print below the tables, for the records of one model
    failed: Exception | None = None  # some runs failed; the records are those of the others
