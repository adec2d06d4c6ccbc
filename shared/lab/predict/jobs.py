"""Runs of scripts on emulated GPUs, each in a fork of a process that has imported everything."""

import dataclasses
import os

from emulated_gpu import cards, launch
from emulated_gpu.build import BuildError
from shared.lab.predict.forks import Forks
from shared.run.errors import UserError


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
    technique: str | None = None  # for the record: the last that the script has been given
    card: cards.Card = cards.DEFAULT
    card_gb: float | None = None  # what the card has; None: more than anything needs
    expandable: bool = False  # PyTorch's allocator under expandable_segments:True
    host_us: float = launch.HOST_US  # that the host takes to start a piece of work
    rank: int | None = None  # of the devices; None: the one that needs most
    words: tuple = ()  # further options of the script


class Failed(UserError):
    """An error of some runs: `failed` of them, for these `reasons`.

    `results` are those of all runs, in order, with exceptions for failed runs; `completed` are the
    results without exceptions.
    """

    def __init__(self, results):
        errors = [result for result in results if isinstance(result, Exception)]
        self.failed = len(errors)
        self.reasons = list(dict.fromkeys(map(str, errors)))  # each once
        super().__init__("; ".join(self.reasons))
        self.results = results
        self.completed = [result for result in results if not isinstance(result, Exception)]


WORKERS = 2  # processes side by side: each has a core of a small computer
_forks = {}  # {whether GPUs are emulated: Forks}, since the two import in other environments


def run_jobs(jobs, emulated=True, workers=WORKERS):
    """Run jobs as attempts() does; return their results, in order.

    Raises:
        UserError: no GPU can be emulated here.
        Failed: at least one job has failed.
    """
    results = attempts(jobs, emulated, workers)
    if any(isinstance(result, Exception) for result in results):
        raise Failed(results)
    return results


def attempts(jobs, emulated=True, workers=WORKERS):
    """Run jobs, (function, *arguments), each in a process of its own, some at a time.

    Return their results, in order, with exceptions for failed jobs. With emulated=True the
    processes have emulated GPUs, with False no GPU, and with None the GPUs of this process.

    Raises:
        UserError: no GPU can be emulated here.
    """
    if not jobs:
        return []
    variables = {**os.environ} if emulated is None else launch.without_gpus()
    if emulated:
        try:
            # Some packages count the GPUs when they are imported, before a job has chosen its own.
            variables = launch.environment(devices=launch.MOST)
        except BuildError as error:
            raise UserError(str(error)) from None
    if emulated not in _forks or not _forks[emulated].is_alive():
        _forks[emulated] = Forks(variables)
    try:
        return _forks[emulated].run(variables, jobs, workers)
    except BaseException:  # Ctrl-C, too
        _forks.pop(emulated).end()
        raise
