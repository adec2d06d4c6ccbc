"""Data for the page's chart of memory against time, as measured: points on logarithmic axes."""

import dataclasses
import math

from shared.lab.lessons import times
from shared.lab.records import formats, measured, scripts
from shared.lab.report.charts import round_size

STEPS = 1, 2, 5  # of the ticks, in each power of ten
ROOM = 1.5  # by which an axis goes on beyond its points, for the texts beside them


@dataclasses.dataclass(frozen=True)
class Axis:
    """A logarithmic axis."""

    low: float
    high: float

    @classmethod
    def of(cls, values):
        """Return the axis that has room for all values."""
        return cls(min(values) / ROOM, max(values) * ROOM)

    def at(self, value):
        """Return the position of a value, in %."""
        return 100 * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self, text):
        """Return the texts and positions of the round values."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
        values = [step * 10.0**decade for decade in decades for step in STEPS]
        return [(text(v), self.at(v)) for v in values if self.low <= v <= self.high]


def chart():
    """Return the chart: points, the line of one script's micro-batches, ticks, and its texts."""
    # 07 changes only how the model is loaded; the stages after it are for several GPUs.
    alone = scripts.ladder()[: scripts.ladder().index("07_init_module/train")]
    line = [run for run in times.MICRO_BATCHES if run[0] == alone[-1]]
    runs = [measured.updates(*r) for r in (*((name,) for name in alone[:-1]), *line)]
    runs.append(measured.updates(*times.CHECKPOINTED))
    of_line = [measured.updates(*r) for r in line]
    axes = {"x": Axis.of([*map(ms, runs)]), "y": Axis.of([run.peak_gb for run in runs])}
    return {
        "points": [point(run, axes, run in of_line) for run in runs],
        "line": [(axes["x"].at(ms(run)), axes["y"].at(run.peak_gb)) for run in of_line],
        "x": axes["x"].ticks(lambda value: f"{value:g} ms"),
        "y": axes["y"].ticks(round_size),
        "gpu": measured.gpu(),
        "after": alone[-1],
        "takeaway": takeaway(of_line, runs[-1]),
    }


def ms(run):
    """Return the milliseconds that an update takes for each of its images."""
    return run.median / run.batch_size


def point(run, axes, in_line):
    """Return a point: its stage, the text beside it, what it shows in words, and its place."""
    folder, file = run.name.split("/")
    name = (folder.partition("_")[2] if file == "train" else file).replace("_", " ")
    at_once = f"{run.at_a_time} at a time"
    return {
        "stage": f"{folder}/train",
        # The line has one script, so that its points need no name.
        "label": at_once if in_line else f"{name}, {at_once}",
        "figures": f"{formats.size(run.peak_gb)}, {ms(run):.1f} ms",
        "in_line": in_line,
        "x": axes["x"].at(ms(run)),
        "y": axes["y"].at(run.peak_gb),
    }


def takeaway(line, checkpointed):
    """Return what the chart teaches, as a sentence."""
    few, many = line[0], line[-1]
    return (
        f"Micro-batches of {few.at_a_time} images instead of {many.at_a_time} need "
        f"{1 - few.peak_gb / many.peak_gb:.0%} less memory, and {ms(few) / ms(many):.1f} times as "
        f"long for an image; recomputing, with {checkpointed.at_a_time} at a time, needs "
        f"{formats.size(checkpointed.peak_gb)} and {ms(checkpointed):.1f} ms."
    )
