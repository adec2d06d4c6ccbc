"""Runs of scripts on emulated GPUs, each in a fork of a process that has imported everything."""

import atexit
import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys

from emulated_gpu import cards, launch
from emulated_gpu.build import BuildError
from shared.cli import UserError
from shared.lab.records import scripts
from shared.record import ROOT


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The settings of a run; None stands for the value of the preset or of the script."""

    preset: str  # "tiny" or "full"
    model: str | None = None
    image_px: int | None = None
    max_length: int | None = None
    batch_size: int | None = None
    micro_batch_size: int | None = None
    devices: int | None = None
    trust_remote_code: bool = False
    # For a folder with one_by_one.py: those to apply; None for the script itself.
    techniques: tuple | None = None
    card: cards.Card = cards.DEFAULT
    card_gb: float | None = None  # what the card has; None: more than anything needs
    expandable: bool = False  # PyTorch's allocator under expandable_segments:True
    clock_us: float = 0  # that the host takes to start a piece of work; 0: all is done at once
    rank: int | None = None  # of the devices; None: the one that needs most
    words: tuple = ()  # further options of the script


class Failed(UserError):
    """Some runs failed, for these reasons; `completed` has the results of the others."""

    def __init__(self, results):
        errors = [result for result in results if isinstance(result, Exception)]
        self.reasons, self.failed = [*dict.fromkeys(map(str, errors))], len(errors)
        super().__init__("; ".join(self.reasons))
        self.completed = [result for result in results if result not in errors]


def one_by_one(name):
    """Return the module one_by_one of a script's folder."""
    return scripts.Script.of_file(scripts.get(name).path.with_name("one_by_one.py")).load()


class Forks:
    """The process that jobs are forked from; imports take it seconds, so it stays until the end."""

    def __init__(self, variables):
        self._end, there = multiprocessing.Pipe()
        command = [sys.executable, "-m", "shared.lab.predict.forks", str(there.fileno())]
        passed = {"cwd": ROOT, "pass_fds": [there.fileno()], "stdin": subprocess.DEVNULL}
        self._process = launch.start(command, variables, **passed)
        there.close()
        atexit.register(self.end)

    def run(self, variables, jobs, workers):
        """Return the results of jobs, which see the given environment, so many at a time."""
        try:
            self._end.send((variables, sys.path, pickle.dumps(jobs), workers))
            return pickle.loads(self._end.recv())
        except (EOFError, OSError):
            raise UserError("the runs were ended; has the host enough memory?") from None

    def is_there(self):
        return self._process.poll() is None

    def end(self):
        """End the process, with all forks."""
        atexit.unregister(self.end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


WORKERS = 2  # processes side by side: each has a core of a small computer
_forks = {}  # whether GPUs are emulated -> Forks


def run_jobs(jobs, emulated=True, workers=WORKERS):
    """Run jobs, (function, *arguments), each in a process of its own, some at a time.

    Return their results, in order. The processes have emulated GPUs, or see no GPU at all, or with
    None what this process sees.

    Raises:
        UserError: no GPU can be emulated here.
        Failed: at least one job has failed.
    """
    variables = {**os.environ} if emulated is None else launch.without_gpus()
    if emulated:
        try:
            # Some packages count the GPUs when they are imported, before a job has chosen its own.
            variables = launch.environment(devices=launch.MOST)
        except BuildError as error:
            raise UserError(str(error)) from None
    if emulated not in _forks or not _forks[emulated].is_there():
        _forks[emulated] = Forks(variables)
    try:
        results = _forks[emulated].run(variables, jobs, workers)
    except BaseException:  # Ctrl-C, too
        _forks.pop(emulated).end()
        raise
    if any(isinstance(result, Exception) for result in results):
        raise Failed(results)
    return results
