"""Runs simulations in processes of their own.

A simulation changes PyTorch in ways that hold for the whole process.
"""

import dataclasses
import os
import types
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tqdm import tqdm

from shared.cli import UserError, choose
from shared.predict import cards, gpu
from shared.records import scripts
from shared.records.running import end_with_parent, forks

# What simulations import, and in a ladder the scripts before them.
PRELOADED = ["shared.metrics", "shared.images.cli", "shared.text.cli", "lightning.fabric"]
# The first update makes optimizer states and gradients. The second starts with all of them, and
# every later update holds the same.
STEADY = 2


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to simulate; what is None is as the preset or the script has it."""

    device: str  # "gpu", or "cpu" for what a script measures on a computer without one
    preset: str  # "tiny" or "full"
    model: str | None = None
    image_px: int | None = None
    max_length: int | None = None
    batch_size: int | None = None
    micro_batch_size: int | None = None
    devices: int | None = None
    num_classes: int | None = None
    updates: int | None = None  # if None, as few as are needed to know what later ones hold
    # Of texts, (n, length) for each update; if None, every length is max_length.
    input_shapes: list | None = None
    trust_remote_code: bool = False
    # Of a folder with one_by_one.py, which to apply; None for the script itself.
    techniques: tuple | None = None
    card: cards.Card | None = None  # cards.DEFAULT
    torch: tuple = cards.INSTALLED  # whose behaviour to simulate, (major, minor)
    # Leave out what kernels and libraries allocate for themselves, and by how much blocks of memory
    # are larger than the tensors in them.
    tensors_only: bool = False
    expandable: bool = False  # PyTorch's allocator under expandable_segments:True
    rates: cards.Rates | None = None  # of a computer without a GPU; None for no bound of the time


def one_by_one(name):
    """Returns the module one_by_one of a script's folder."""
    folder = scripts.get(name).folder
    return scripts.Script(f"{folder}/one_by_one", "", "", None, False).load()


def arguments(name, script, options):
    """Returns the options that cli.parse and the data would give a script, a module."""
    task, micro = script.TASK, getattr(script, "MICRO_BATCH_SIZE", None)
    same = ("preset", "model", "max_length", "trust_remote_code", "input_shapes")
    args = types.SimpleNamespace(script=name, data="fake", pretrained=False, seed=123)
    vars(args).update({key: getattr(options, key) for key in same})
    choose(args, task)
    args.accelerator = "cpu"
    args.image_px = options.image_px or getattr(args, "image_px", None)
    args.num_classes = options.num_classes or task.classes
    args.batch_size = options.batch_size or script.BATCH_SIZE
    args.micro_batch_size = (options.micro_batch_size or micro) if micro else None
    devices = (options.devices or script.DEVICES) if script.DEVICES > 1 else 1
    args.devices = args.world_size = devices
    args.num_nodes = 1
    args.updates = options.updates or STEADY  # of the whole training, for schedules
    args.shares = getattr(script, "SHARES", devices)
    if args.batch_size % devices:
        batch = f"a batch of {args.batch_size} {task.unit}"
        raise UserError(f"{name}: {batch} does not divide by {devices} devices")
    return args


def run_jobs(jobs):
    """Runs functions, (function, *arguments), each in a process of its own, two at a time.

    Returns what they return, in order.
    """
    workers, context = min(2, os.cpu_count()), forks(PRELOADED)
    bar = {"total": len(jobs), "unit": "script", "leave": False, "disable": None}  # on a terminal
    with ProcessPoolExecutor(workers, context, _alone, max_tasks_per_child=1) as pool:
        try:
            return list(tqdm(pool.map(_run, jobs), **bar))
        except BrokenProcessPool:
            raise UserError("a simulation was killed; each needs about 1 GB of memory") from None


def _alone():  # a process computes the same whether there is a GPU or not
    end_with_parent()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _run(job):
    return call(*job)


def call(function, *arguments):
    """Calls the function of a job; any error becomes a UserError, as a model may be to blame."""
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
        why = "depends on the numbers in a tensor, and simulated tensors have none"
        return f"{what} cannot be simulated: the result of {said} {why}"
    return f"the simulation of {what} failed: {type(error).__name__}: {said[:300]}"
