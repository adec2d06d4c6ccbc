"""Runs simulations in processes of their own.

A simulation changes PyTorch in ways that hold for the whole process.
"""

import concurrent.futures
import dataclasses
import os
from concurrent.futures.process import BrokenProcessPool
from unittest import mock

from tqdm import tqdm

from shared.cli import UserError
from shared.predict import cards, gpu
from shared.predict.rates import Rates
from shared.records.running import forks

# What simulations import, and in a ladder the scripts before them.
PRELOADED = ["shared.metrics", "shared.images.cli", "shared.text.cli", "lightning.fabric"]


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to simulate.

    Attributes:
        device: "gpu", or "cpu" for what a script measures on a computer without one.
        preset: "tiny" or "full".
        model, image_px, max_length, batch_size, micro_batch_size, devices, num_classes: as the
            preset or the script has it, if None.
        updates: how many to simulate; if None, as few as are needed to know what later ones hold.
        input_shapes: of texts, (n, length) for each update; if None, every length is max_length.
        trust_remote_code: whether a model may come with code of its own.
        late_zero_grad: free old gradients between forward and backward pass, not after the step.
        techniques: of a folder with one_by_one.py, which to apply; None for the script itself.
        card: the GPU; that of cards.DEFAULT, if None.
        torch: whose behaviour to simulate, (major, minor).
        tensors_only: leave out what kernels and libraries allocate for themselves, and by how much
            blocks of memory are larger than the tensors in them.
        rates: of a computer without a GPU, rates.Rates; None for no bound of the time.
    """

    device: str
    preset: str
    model: str | None = None
    image_px: int | None = None
    max_length: int | None = None
    batch_size: int | None = None
    micro_batch_size: int | None = None
    devices: int | None = None
    num_classes: int | None = None
    updates: int | None = None
    input_shapes: list | None = None
    trust_remote_code: bool = False
    late_zero_grad: bool = False
    techniques: tuple | None = None
    card: cards.Card | None = None
    torch: tuple = cards.INSTALLED
    tensors_only: bool = False
    rates: Rates | None = None


def run_jobs(jobs):
    """Runs functions, each in a process of its own, two at a time.

    Args:
        jobs: list of (function, *arguments), such as (simulation.predict, "06_sgd/train", Wanted).

    Returns:
        what they return, in the same order.

    Raises:
        UserError: one of them raised it, or was killed.
    """
    workers, context = min(2, os.cpu_count()), forks(PRELOADED)
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, context, initializer=_without_gpu, max_tasks_per_child=1
    )
    with pool:
        waiting = [pool.submit(call, *job) for job in jobs]
        ended = concurrent.futures.as_completed(waiting)
        try:
            # On a terminal, a bar shows how far it is.
            for job in tqdm(ended, total=len(jobs), unit="script", leave=False, disable=None):
                job.result()  # raises an error at once, before the others are done
        except BrokenProcessPool:
            raise UserError("a simulation was killed; each needs about 1 GB of memory") from None
        finally:
            pool.shutdown(cancel_futures=True)
    return [job.result() for job in waiting]


def _without_gpu():
    """Makes a process compute the same whether there is a GPU or not."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def call(function, *arguments):
    """Calls the function of a job.

    Raises:
        UserError: with one line for any error: a model may be one that cannot be simulated.
    """
    try:
        return function(*arguments)
    except UserError:
        raise
    except Exception as error:
        raise UserError(_why(error, *arguments)) from None


def _why(error, name=None, options=None, *_):
    model = getattr(options, "model", None)
    what = f"{name} with {model}" if model else str(name)
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, gpu.NEEDS_NUMBERS):
        return (
            f"{what} cannot be simulated: the result of {said} depends on the numbers in a tensor, "
            "and simulated tensors have none"
        )
    return f"the simulation of {what} failed: {type(error).__name__}: {said[:300]}"


def environment(**variables):
    """Sets environment variables for a while, for the processes that are started in it."""
    return mock.patch.dict(os.environ, variables)
