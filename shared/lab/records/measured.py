"""Measurements on real GPUs, read from the files that evidence.calibrate writes.

A file NAME.jsonl.xz in results/ has the runs, NAME-emulated.jsonl.xz the same on an emulated GPU.
Where two files have the same run, the first of FILES counts.
"""

import dataclasses
import functools
import statistics

from shared.lab.records import stored

# The first has the times that the pages print: of the command, alone on its machine. The second
# was made by the command's prototype, and has what the first lacks.
FILES = [stored.RESULTS / f"{name}.jsonl.xz" for name in ("h200", "h200-prototype")]
IDENTITY = "kind name devices batch_size micro_batch_size expandable".split()  # fields of a run
SAME = 0.02  # a relative difference of kernels; the pace of the host varies by much more
LAUNCH_US = 30  # that this host takes to start a kernel: the median of launch_us() of its runs


@dataclasses.dataclass(frozen=True)
class Updates:
    """Timed updates of a script, one after the other, in milliseconds."""

    name: str
    batch_size: int
    at_a_time: int
    peak_gb: float
    ms: tuple
    launch_ms: float  # median, until the host had started all of an update
    kernels: int
    busy_ms: float  # of the GPU, in another, profiled update
    emulated: dict | None  # "ms" and "busy_ms" of an emulated GPU

    @property
    def median(self):
        """The median ms of an update."""
        return statistics.median(self.ms)

    @property
    def per_second(self):
        """Images or texts per second."""
        # By the median: now and then an update waits for something else on the host.
        return self.batch_size / self.median * 1e3

    @property
    def passes(self):
        """Forward and backward passes of an update."""
        return self.batch_size // self.at_a_time

    @property
    def paced(self):
        """Return whether the host sets the pace: its launches take nearly the whole update."""
        # And the GPU was idle for a tenth of the update.
        return self.launch_ms > 0.97 * self.median and self.busy_ms < 0.9 * self.median

    @property
    def launch_us(self):
        """Microseconds that the host takes to start a kernel, where it sets the pace."""
        return self.launch_ms / self.kernels * 1e3

    @property
    def enough(self):
        """Images at a time from which on the GPU sets the pace, and no host of LAUNCH_US."""
        host_ms = self.kernels / self.passes * LAUNCH_US / 1e3
        return host_ms / (self.busy_ms / self.batch_size)


@functools.cache
def read(file):
    """Return the machine's line of a file of FILES, and the lines of its runs."""
    machine, *runs = stored.read(file)
    return machine, runs


@functools.cache
def comparison(file):
    """Return the header of the comparison of a file with an emulated GPU, and its runs."""
    name = file.name.partition(".")[0]
    header, *runs = stored.read(file.with_name(f"{name}-emulated.jsonl.xz"))
    return header, runs


def machines():
    """Return the lines of the machines, one of each file."""
    return [read(file)[0] for file in FILES]


def lines():
    """Return the lines of the runs in all files; of equal runs, that of the first file."""
    return [*_each_once(read).values()]


def compared():
    """Return the comparisons of memory with an emulated GPU, each run once, as in lines()."""
    return [r for r in _each_once(comparison).values() if r["kind"] == "memory"]


def _each_once(of_file):
    """Return the runs of all files, {identity: run}; of equal ones, that of the first file."""
    runs = {}
    for file in FILES:
        for r in of_file(file)[1]:
            runs.setdefault(tuple(r[field] for field in IDENTITY), r)
    return runs


@functools.cache
def times():
    """Return the timed updates on the GPU whose times the pages print, in order."""
    emulated = _each_once(comparison)
    runs = []
    for identity, r in _each_once(read).items():
        # With faked ranks communication takes no time, so the times of several devices say nothing.
        if r["kind"] != "time" or r["devices"] > 1:
            continue
        record = r["record"]
        batch_size = record["batch_size"]
        run = Updates(
            name=r["name"],
            batch_size=batch_size,
            # A micro-batch that is larger than the batch is the batch.
            at_a_time=min(record["micro_batch_size"] or batch_size, batch_size),
            peak_gb=record["train"]["device_peak_gb"],
            ms=tuple(r["update_ms"]),
            launch_ms=statistics.median(r["launch_ms"]),
            # The mean over the profiled updates, which need not be whole.
            kernels=round(r["profile"]["kernels"]),
            busy_ms=r["profile"]["busy_ms"],
            emulated=emulated[identity]["emulated"] if identity in emulated else None,
        )
        runs.append(run)
    return runs


def most_per_second(name, devices):
    """Return the images or texts per second that a script on many GPUs makes at most.

    Rank 0 was timed. With absent ranks communication took no time; with real ones it takes longer.
    """
    (run,) = (
        r for r in lines() if r["kind"] == "time" and (r["name"], r["devices"]) == (name, devices)
    )
    return run["record"]["batch_size"] / statistics.median(run["update_ms"]) * 1e3


def updates(name, batch_size=None, at_a_time=None):
    """Return the Updates of a script with these sizes, by default its own; None if not measured.

    Its own are those of the first run in the file.
    """
    for run in times():
        fits = batch_size in (None, run.batch_size) and at_a_time in (None, run.at_a_time)
        if run.name == name and fits:
            return run
    return None


def gpu():
    """Return the name of the GPU, with PyTorch's version: "H200, PyTorch 2.11.0"."""
    machine = machines()[0]
    torch = machine["versions"]["torch"].partition("+")[0]
    return f"{machine['gpu'].removeprefix('NVIDIA ')}, PyTorch {torch}"


def spread(run, number=None):
    """Format a median with its range: "239 (219-305)"; by default the ms of an update."""
    number = number or (lambda ms: ms)
    # Sorted, since the longest update has the fewest images per second.
    low, high = sorted((number(min(run.ms)), number(max(run.ms))))
    return f"{number(run.median):.0f} ({low:.0f}–{high:.0f})"


def images_per_second(name, names):
    """Format the images per second of one of several scripts, with their range.

    Where the host sets the pace, scripts that start the same kernels differ as two runs of one
    script do, so they have one range, and that of all their updates.
    """
    run = updates(name)
    alike = [other for other in map(updates, names) if other and same_kernels(run, other)]
    if len(alike) < 2:
        return spread(run, lambda ms: run.batch_size / ms * 1e3)
    rates = [other.batch_size / ms * 1e3 for other in alike for ms in other.ms]
    medians = [other.per_second for other in alike]
    return f"{min(medians):.0f} to {max(medians):.0f} ({min(rates):.0f}–{max(rates):.0f})"


def same_kernels(run, other):
    """Return whether the host sets the pace of two runs, and starts nearly the same kernels."""
    near = abs(other.kernels / run.kernels - 1) < SAME
    return run.paced and other.paced and run.batch_size == other.batch_size and near
