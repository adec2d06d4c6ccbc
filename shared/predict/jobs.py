"""Simulations, each in a process of its own.

A simulation changes PyTorch for the whole process.
"""

import dataclasses
import os
import types
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tqdm import tqdm

from shared.cli import UserError, choose
from shared.emulator import cards
from shared.predict import gpu, machine
from shared.records import scripts
from shared.records.running import end_with_parent, forks

# Modules that simulations import, and in a ladder the scripts before them.
PRELOADED = ["shared.metrics", "shared.images.cli", "shared.text.cli", "lightning.fabric"]
# The first update creates gradients and optimizer states. The second starts with all of them, and
# every later update holds the same.
STEADY = 2


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The settings of a simulation; None stands for the value of the preset or of the script."""

    device: str  # "gpu", or "cpu" for a computer without a GPU
    preset: str  # "tiny" or "full"
    model: str | None = None
    image_px: int | None = None
    max_length: int | None = None
    batch_size: int | None = None
    micro_batch_size: int | None = None
    devices: int | None = None
    num_classes: int | None = None
    updates: int | None = None  # if None, STEADY, which show what all later ones hold
    # For texts, the (n, length) of each update; if None, every length is max_length.
    input_shapes: list | None = None
    trust_remote_code: bool = False
    # For a folder with one_by_one.py: those to apply; None for the script itself.
    techniques: tuple | None = None
    card: cards.Card | None = None  # cards.DEFAULT
    torch: tuple = machine.INSTALLED  # the version to simulate, (major, minor)
    # Leave out the workspaces of kernels and libraries, and the rounding of tensors up to blocks.
    tensors_only: bool = False
    expandable: bool = False  # PyTorch's allocator under expandable_segments:True
    rates: cards.Rates | None = None  # of a computer without a GPU; None: no bound


def one_by_one(name):
    """Return the module one_by_one of a script's folder."""
    return scripts.Script(f"{scripts.get(name).folder}/one_by_one", "", "", None, False).load()


def arguments(name, script, options):
    """Return the options that cli.parse() and the data would give a script (a module)."""
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
    args.updates = options.updates or STEADY  # of the whole run, for schedules
    args.shares = getattr(script, "SHARES", devices)
    if args.batch_size % devices:
        batch = f"a batch of {args.batch_size} {task.unit}"
        raise UserError(f"{name}: {batch} does not divide by {devices} devices")
    return args


def run_jobs(jobs):
    """Run jobs, (function, *arguments), each in a process of its own, two at a time.

    Return their results, in order.
    """
    workers, context = min(2, os.cpu_count()), forks(PRELOADED)
    bar = {"total": len(jobs), "unit": "script", "leave": False, "disable": None}  # on a terminal
    with ProcessPoolExecutor(workers, context, _alone, max_tasks_per_child=1) as pool:
        try:
            return list(tqdm(pool.map(_run, jobs), **bar))
        except BrokenProcessPool:
            raise UserError("a simulation was killed; each needs about 1 GB of memory") from None


def _alone():  # hide GPUs, so that results are the same on every machine
    end_with_parent()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _run(job):
    return call(*job)


def call(function, *arguments):
    """Call the function of a job; raise any error as a UserError, as the model may cause it."""
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
