"""The results of the checks of a learner's stage, as facts; check_texts makes sentences of them."""

import dataclasses

from shared.lab.grading.same_training import Comparison

PEAK_TOLERANCE = 5e-3  # relative: another order of the same lines moves a peak by less


@dataclasses.dataclass(frozen=True)
class Form:
    """The functions and constants of a script beside those of the stage."""

    missing: tuple  # names
    values: dict  # {constant: (its code, the stage's code)}, where they differ

    @property
    def right(self):
        """Return whether all functions and constants of the stage are there."""
        return not self.missing


@dataclasses.dataclass(frozen=True)
class Diff:
    """The number of lines changed from the stage before."""

    actual: int
    expected: int
    script: str
    parent: str

    @property
    def limit(self):
        """The most lines that may change: the same code can be written in more lines."""
        return 2 * self.expected + 8

    @property
    def right(self):
        """Return whether some lines changed, but not more than the limit."""
        return 0 < self.actual <= self.limit


@dataclasses.dataclass(frozen=True)
class Losses:
    """A short training beside the stage's."""

    comparison: Comparison
    uneven: bool = False  # whether the last micro-batch was smaller than the others

    @property
    def right(self):
        """Return whether the trainings are the same."""
        return self.comparison.same


@dataclasses.dataclass(frozen=True)
class Category:
    """The GB of a category at the peak; expected_gb is None if the stage has nothing of it."""

    name: str
    gb: float
    expected_gb: float | None

    @property
    def more_gb(self):
        """The GB beyond those of the stage."""
        return self.gb - (self.expected_gb or 0)

    @property
    def times(self):
        """The size relative to that in the stage."""
        return self.gb / self.expected_gb if self.expected_gb else float("inf")


@dataclasses.dataclass(frozen=True)
class Peak:
    """The peak of a phase, in GB, beside those of the stage and of the stage before."""

    phase: str  # "load" or "train"
    gb: float
    expected_gb: float
    parent_gb: float
    script: str
    parent: str
    device: str | None  # where it was measured, if that is one of several emulated GPUs
    categories: tuple

    @property
    def right(self):
        """Return whether the peak is at most the stage's, but for PEAK_TOLERANCE."""
        return self.gb <= (1 + PEAK_TOLERANCE) * self.expected_gb

    @property
    def larger(self):
        """The categories that explain a larger peak, the largest relative growth first."""
        least_gb = PEAK_TOLERANCE * self.expected_gb
        larger = [category for category in self.categories if category.more_gb > least_gb]
        return sorted(larger, key=lambda category: -category.times)


@dataclasses.dataclass(frozen=True)
class Error:
    """The error with which a run ended."""

    message: str
    right = False
