"""Programs that run with emulated GPUs, and the memory that they needed."""

import dataclasses
import tempfile
from pathlib import Path

from emulated_gpu import cards, launch, peak


@dataclasses.dataclass(frozen=True)
class Peak:
    """The peaks of memory of one GPU of one process, in bytes."""

    rank: int
    device: int  # its number in the process
    allocated: int
    active: int  # with what waits for other streams
    reserved: int  # with what PyTorch's allocator keeps


@dataclasses.dataclass(frozen=True)
class Run:
    """A program that has ended."""

    code: int  # its exit code, negative for a signal
    peaks: list  # of Peak, by rank; empty if nothing was allocated on a GPU
    reports: list  # of the processes: see launch.run()
    at_peak: peak.AtPeak | None  # of rank 0; None if there is no history
    devices: int = 1  # GPUs that were emulated

    @property
    def needs_gb(self):
        """The GB that a card needs."""
        return needs_gb(self.reports, self.devices)


def peaks(reports):
    """Return the Peaks of launch.run()'s reports."""
    return [
        Peak(report["rank"], int(device), **sizes)
        for report in reports
        for device, sizes in report["peaks"].items()
    ]


def needs_gb(reports, devices):
    """Return the GB that each of `devices` cards needs; 0 without peaks.

    That is what the process that reserves most reserves, and what CUDA takes and, of several, NCCL.
    """
    reserved = max((p.reserved for p in peaks(reports)), default=0)
    return reserved / 1e9 + cards.set_aside(devices) if reserved else 0


def run(command, card="a100", devices=1, *, history=False, **options):
    """Run a program with emulated GPUs until it ends: see emulated_gpu.run()."""
    output = {name: options.pop(name) for name in ("cwd", "stdout", "stderr") if name in options}
    variables = options.pop("env", {})
    environment = launch.environment(cards.get(card), devices, **options) | variables
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        snapshot = Path(folder, "snapshot.pickle") if history else None
        code, reports = launch.run(command, environment, snapshot, **output)
        found = peak.read(snapshot) if history and snapshot.exists() else None
    return Run(code, peaks(reports), reports, found, devices)
