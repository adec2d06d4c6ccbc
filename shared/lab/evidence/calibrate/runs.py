"""The runs that `python -m shared calibrate` measures, in groups.

A group is finished before the next begins, and its runs go side by side where only memory is
measured. The most important groups come first, in case the GPU is gone too early.
"""

import dataclasses
import re

from shared.lab.predict import cases
from shared.lab.records import scripts

RANKS = 4  # of the scripts from 08 on: rank 0 of them runs, the others are not there
LARGE_GB = 9  # reserved: scripts that need more are not run beside many others
TABLE = cases.tables()["calibrate"]  # of scripts that run in further ways
SIZES = TABLE["sizes"]
TOO_LARGE = TABLE["too_large"]
UPDATES = 3  # where memory is measured: the second is the first with everything at its start
GROUPS = ("outside", "time", "memory", "memory, large", "tiny", "out of memory")


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a script, or of a function of this package; None stands for the script's own."""

    kind: str  # of GROUPS, without what follows a comma
    name: str  # of a script, or of a function of outside.py
    devices: int = 1  # ranks, of which rank 0 runs
    batch_size: int | None = None
    micro_batch_size: int | None = None
    expandable: bool = False  # with expandable segments
    large: bool = False

    @property
    def group(self):
        """The group of the run, of GROUPS."""
        return f"{self.kind}, large" if self.large else self.kind

    @property
    def settings(self):
        """The fields of a record that identify the run in a file."""
        fields = dataclasses.asdict(self)
        # `large` only decides how many runs go side by side, and follows from predictions.
        return {key: value for key, value in fields.items() if key != "large"}

    def __str__(self):
        ranks = f", rank 0 of {self.devices}" if self.devices > 1 else ""
        sizes = f", {self.batch_size} images" if self.batch_size else ""
        sizes += f", {self.micro_batch_size} at a time" if self.micro_batch_size else ""
        return f"{self.kind}: {self.name}{ranks}{sizes}{', expandable' * self.expandable}"


def of_record(record):
    """Return the Run of a record, from its fields."""
    names = [field.name for field in dataclasses.fields(Run) if field.name != "large"]
    return Run(**{name: record[name] for name in names})


def ranks(name):
    """Return the number of ranks of a script, read from its text without importing it."""
    devices = re.search(r"^DEVICES = (\d+)", scripts.get(name).source, re.M)
    return RANKS if devices and int(devices[1]) > 1 else 1


def every(names, large):
    """Return the runs of these scripts, in the order of GROUPS.

    `large` has those that need more than LARGE_GB.
    """
    runs = [Run("outside", name) for name in ("context", "compiled")]
    for name in names:
        stage = not scripts.get(name).side_road
        several = ranks(name)
        # Stages from 08 on twice: on one GPU with NCCL, and as one of several without it.
        counts = sorted({several, 1}) if stage else [several]
        runs += [Run("memory", name, devices, large=name in large) for devices in counts]
        if name in TABLE["expandable"]:
            runs.append(Run("memory", name, several, expandable=True, large=name in large))
        # A plain.py computes the same as its train.py, so only its memory is measured.
        if scripts.get(name).plain:
            continue
        if stage or name in TABLE["timed"]:
            runs += [Run("time", name, devices) for devices in counts]
        runs += [Run("time", name, **sizes) for sizes in SIZES.get(name, ())]
        if name not in TABLE["several_only"]:
            runs.append(Run("tiny", name))
        if name in TOO_LARGE:
            runs.append(Run("out of memory", name, batch_size=TOO_LARGE[name]))
    # SIZES has the scripts whose times are missed most; within them the order stays.
    place = {run: (GROUPS.index(run.group), run.name not in SIZES) for run in runs}
    return sorted(place, key=place.get)
