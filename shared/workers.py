"""Runs simulations in processes of their own: what a simulation does to PyTorch holds for its whole process."""

import concurrent.futures
import contextlib
import importlib
import multiprocessing.forkserver
import os
import signal
import sys
import types
from concurrent.futures.process import BrokenProcessPool

import torch
from packaging.requirements import Requirement
from tqdm import tqdm

from shared import UserError, stages
from shared.metrics import LEDGER_UPDATES


def wanted(
    device,
    preset,
    model=None,
    image_px=None,
    max_length=None,
    batch_size=None,
    micro_batch_size=None,
    devices=None,
    num_classes=None,
    updates=LEDGER_UPDATES,
    input_shapes=None,
    trust_remote_code=False,
    late_zero_grad=False,
    techniques=None,
):
    """Returns what to simulate, for simulation.predict and fits.largest_micro_batch.

    Args:
        device: "gpu", or "cpu" for what a stage measures on a computer without one.
        preset: "tiny" or "full".
        model, image_px, max_length, batch_size, micro_batch_size, devices, num_classes: as the preset or the script has
            it, if None.
        updates: how many to simulate.
        input_shapes: of texts, (n, length) for each update; max_length all the time, if None.
        trust_remote_code: whether a model may come with code of its own.
        late_zero_grad: free old gradients between forward and backward pass instead of right after the step.
        techniques: of a folder with one_by_one.py, the number of techniques to apply; None for the script as it is.
    """
    return types.SimpleNamespace(**locals())


def supported_torch():
    """Makes sure that the predictor knows this version of PyTorch, whose private parts it uses.

    Raises:
        UserError: it does not.
    """
    lines = (stages.ROOT / "requirements.txt").read_text().splitlines()
    wanted = next(Requirement(line.partition("#")[0]) for line in lines if line.startswith("torch>"))
    if not wanted.specifier.contains(torch.__version__.partition("+")[0], prereleases=True):
        raise UserError(f"torch {torch.__version__} is here; the predictor is tested with torch {wanted.specifier}: pip install '{wanted}'")


def run(jobs):
    """Runs functions of shared.simulation and shared.fits, each in a process of its own, two at a time.

    Args:
        jobs: list of (module's name, function's name, *arguments).

    Returns:
        what they return, in the same order.

    Raises:
        UserError: one of them did, or was killed.
    """
    supported_torch()
    context = multiprocessing.get_context("forkserver")  # which imports PyTorch once, for all
    context.set_forkserver_preload(["shared.fits", "shared.data", "shared.timeline"])
    workers = min(2, os.cpu_count())
    with environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"):  # nothing may depend on a GPU being there
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for this process, which ends the others
        multiprocessing.forkserver.ensure_running()
        signal.signal(signal.SIGINT, interrupt)
        with concurrent.futures.ProcessPoolExecutor(workers, context, max_tasks_per_child=1) as pool:
            waiting = [pool.submit(_call, *job) for job in jobs]
            try:
                for job in tqdm(concurrent.futures.as_completed(waiting), total=len(jobs), unit="stage", leave=False, disable=not sys.stderr.isatty()):
                    job.result()  # raises what went wrong, before the others are done
                return [job.result() for job in waiting]
            except BrokenProcessPool:
                raise UserError("a simulation was killed; each needs about 1 GB of memory") from None
            finally:
                pool.shutdown(cancel_futures=True)


def _call(module, function, *arguments):
    try:
        return getattr(importlib.import_module(f"shared.{module}"), function)(*arguments)
    except UserError:
        raise
    except Exception as error:
        if "overflow" in str(error):
            raise UserError("a tensor would have more bytes than can be counted; choose smaller sizes") from None
        # One line, also because not every exception can travel from one process to another.
        raise UserError(f"the simulation of {arguments[0]} failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:300]}") from None


@contextlib.contextmanager
def environment(**variables):
    """Sets environment variables for a while, for the processes that are started in it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
