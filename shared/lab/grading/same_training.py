"""Comparison of two short trainings: of a changed script and of its original.

`python -m shared check` and `python -m shared game` both decide by same_training(). It returns
facts; grading/check_texts.py and game/texts.py turn them into sentences.
"""

import dataclasses
import enum

# Relative. The same sums in another order change a loss by 3e-4 of it at most after four updates,
# by 4e-5 after eight; a missing zero_grad() by 8e-4 and 3e-3. The limit lies between.
LOSS_TOLERANCE = 4e-4
# Relative. bf16 gradients that are added up in another order differ by a few percent in norm.
GRADIENT_TOLERANCE = 0.1


@dataclasses.dataclass(frozen=True)
class Training:
    """A short training; a field that was not observed keeps its default."""

    batch_size: int
    precision: str
    first_loss: float
    last_loss: float
    num_trained: int | None = None  # weights that get a gradient
    optimizer: str | None = None  # name of its class
    gradient_norms: tuple = ()  # at each step of the optimizer
    curve: tuple = ()  # the values in the script's list of that name

    @classmethod
    def of_record(cls, record, **observed):
        """Return the Training of a record of shared/run/record.py, with further observed fields."""
        names = ("batch_size", "precision", "first_loss", "last_loss")
        return cls(**{name: record[name] for name in names}, **observed)


class Aspect(enum.Enum):
    """A property in which two trainings can differ."""

    BATCH_SIZE = enum.auto()
    NUM_TRAINED = enum.auto()
    PRECISION = enum.auto()
    NUM_STEPS = enum.auto()
    OPTIMIZER = enum.auto()
    GRADIENTS = enum.auto()
    FIRST_LOSS = enum.auto()
    LAST_LOSS = enum.auto()
    CURVE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of same_training()."""

    attempt: Training
    reference: Training
    differences: tuple  # of Aspect, in the order of the enumeration
    update: int | None = None  # the first, from 1 on, with other gradients

    @property
    def same(self):
        """Return whether the trainings differ in no aspect."""
        return not self.differences


def same_training(attempt, reference):
    """Compare two Trainings; return a Comparison."""
    update = first_update_with_other_gradients(attempt, reference)
    differs = {
        Aspect.BATCH_SIZE: attempt.batch_size != reference.batch_size,
        Aspect.NUM_TRAINED: attempt.num_trained != reference.num_trained,
        Aspect.PRECISION: attempt.precision != reference.precision,
        Aspect.NUM_STEPS: len(attempt.gradient_norms) != len(reference.gradient_norms),
        Aspect.GRADIENTS: update is not None,
        Aspect.FIRST_LOSS: not near(attempt.first_loss, reference.first_loss, LOSS_TOLERANCE),
        Aspect.LAST_LOSS: not near(attempt.last_loss, reference.last_loss, LOSS_TOLERANCE),
        Aspect.CURVE: not same_curve(attempt.curve, reference.curve),
    }
    # Another implementation of the same optimizer, such as a fused one, has another class and the
    # same losses. So a class counts only where the losses differ.
    learns = not (differs[Aspect.FIRST_LOSS] or differs[Aspect.LAST_LOSS])
    differs[Aspect.OPTIMIZER] = not learns and attempt.optimizer != reference.optimizer
    # In the order of Aspect, where causes stand before what follows from them.
    differences = tuple(aspect for aspect in Aspect if differs[aspect])
    return Comparison(attempt, reference, differences, update)


def near(value, reference, tolerance):
    """Return whether a number is within a relative tolerance of a reference."""
    return abs(value - reference) <= tolerance * abs(reference)


def first_update_with_other_gradients(attempt, reference):
    """Return the number of the first update whose gradients differ in norm, or None."""
    norms = zip(attempt.gradient_norms, reference.gradient_norms)
    for update, (norm, expected) in enumerate(norms, start=1):
        if not near(norm, expected, GRADIENT_TOLERANCE):
            return update
    return None


def same_curve(curve, reference):
    """Return whether two lists of losses are equally long, and near at each place."""
    # zip() would compare only as many as both have.
    if len(curve) != len(reference):
        return False
    return all(near(a, b, LOSS_TOLERANCE) for a, b in zip(curve, reference))
