"""The options that scripts and ladder share, and how a script's command line is parsed."""

import argparse
import contextlib
import logging
import shlex
import sys
from pathlib import Path

import torch

from shared.common import kept
from shared.common.devices import choose_devices
from shared.common.errors import UserError
from shared.common.files import writable
from shared.memory import bf16
from shared.records import scripts

PRESETS = ("tiny", "full")


# Some packages, which the scripts import after this module, have PyTorch warn of what they do.
logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError for a mistake, and takes no abbreviated options."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message):
        raise UserError(f"{message} (see --help)")


def positive(text):
    """Converts an option's text to a positive integer.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    with contextlib.suppress(ValueError):
        if int(text) > 0:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")


def number(text):
    """Converts an option's text to a positive number.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text} is not a positive number")


def name(text):
    """Takes an option's text as it is, but for an empty one.

    Raises:
        argparse.ArgumentTypeError: it is empty.
    """
    if text.strip():
        return text
    raise argparse.ArgumentTypeError("it is empty; name something, or leave the option out")


def seed(text):
    """Converts an option's text to a seed, as all random generators take it.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    with contextlib.suppress(ValueError):
        if 0 <= int(text) < 2**32:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 to {2**32 - 1}")


def add_stages(parser):
    """Adds the arguments that tell a command which scripts; selected() reads them.

    Stages may have spaces or commas between them. --stages is for commands written down earlier.
    """
    which = "which, such as 06, 01-06,08 or 06_sgd/plain (default: all stages that --model suits)"
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=which)
    older = {"dest": "further", "action": "append", "default": [], "help": argparse.SUPPRESS}
    parser.add_argument("--stages", metavar="LIST", **older)
    beside = "and the side roads in their folders, other techniques, each with what it changes"
    parser.add_argument("--side-roads", "--all", action="store_true", help=beside)


def selected(args):
    """Returns the scripts that the arguments of add_stages() name, None if they name none.

    Side roads that come with all stages are not in it; see beside().

    Raises:
        UserError: one of them is not there.
    """
    texts = [*args.stages, *args.further]
    return scripts.select(texts, "stage") if texts else None


def beside(args, names):
    """Returns scripts, and with --side-roads the side roads in their folders too, in order."""
    return scripts.with_side_roads(names) if args.side_roads else names


def command_of(program, argv):
    """Returns what a user would type to repeat this: a program, and the arguments it got."""
    return shlex.join(["python", *program, *(sys.argv[1:] if argv is None else argv)])


def parser(description, *tasks):
    """Returns a parser with the options that scripts and ladder share.

    Args:
        description: for --help.
        tasks: each common.task.Task that the scripts can be about.
    """
    p = Parser(description=description)
    add = p.add_argument
    what = "{model} on {data}".format
    tiny, full = (" or ".join(what(**task.presets[name]) for task in tasks) for name in PRESETS)
    preset = f"tiny: {tiny}, for any computer; full: {full} (default: full with CUDA, else tiny)"
    models = "; ".join(task.model_help for task in tasks)
    data = "; ".join(task.data_help for task in tasks)
    add("--preset", choices=PRESETS, help=preset)
    add("--model", type=name, metavar="NAME", help=f"{models} (default: the preset's)")
    add("--data", type=name, metavar="WHAT", help=f"{data} (default: the preset's)")
    for task in tasks:
        task.add_options(p, script=len(tasks) == 1)
    devices = "GPUs per machine, or processes on a CPU; from 08_fsdp on (default: 4)"
    steps = "stop after N updates; evaluations then read N batches at most"
    order = "for the order of the data and for random weights (default: 123)"
    add("--devices", type=positive, metavar="N", help=devices)
    add("--epochs", type=positive, default=1, metavar="N", help="passes over the data (default: 1)")
    add("--max-steps", type=positive, metavar="N", help=steps)
    add("--seed", type=seed, default=123, help=order)
    random = "start from random weights"
    add("--no-pretrained", dest="pretrained", action="store_false", help=random)
    return p


def parse(
    file, argv, task, *, batch_size, micro_batch_size=None, devices=1, launcher=None, shares=None
):
    """Parses a script's command line.

    Args:
        file: the script, as in __file__; its docstring is for --help.
        argv: list of arguments, or None for the command line's.
        task: what the script is about, a common.task.Task.
        batch_size: images, or texts, per update, over all devices.
        micro_batch_size: how many of them per forward pass and device; None for the whole batch.
        devices: how many devices the script is meant for; 1 if it cannot use more.
        launcher: "torchrun" for a script that leaves it to torchrun to start processes; None if it
            does so itself. Without torchrun such a script is a single process, and finds in the
            environment what torchrun would put there.
        shares: into how many shares the devices divide a batch; None for one for each of them.

    Returns:
        argparse.Namespace with the options and, derived from them: accelerator ("cuda" or "cpu"),
        devices (per machine), num_nodes, world_size, shares (of a batch), notes (lines that tell
        what was chosen), checkpoint_file (None), and what task.choose() fills in.

    Raises:
        UserError: an option is unknown, out of range, or does not fit this script or machine.
    """
    quiet()
    path = Path(file).resolve()
    name = f"{path.parent.name}/{path.stem}"
    if name not in scripts.every():
        raise UserError(
            "the first line of its docstring must say what it is, such as "
            '"Side road from 06_sgd/train.py, Momentum: one state back."'
        )
    script = scripts.get(name)
    p = parser(f"{script.title}: {script.idea}", task)
    record = "append what was measured to FILE, one JSON object per line"
    save = f"write the model to DIR, {task.saved_help}; meanwhile, checkpoints of the training"
    minutes = f"minutes between two checkpoints (default: {kept.MINUTES})"
    resume = "go on from the checkpoint in --save DIR, if there is one; the rest as before"
    p.add_argument("--record", type=Path, metavar="FILE", help=record)
    p.add_argument("--save", type=Path, metavar="DIR", help=save)
    p.add_argument("--save-minutes", type=number, metavar="N", help=minutes)
    p.add_argument("--resume", action="store_true", help=resume)
    if devices > 1:
        wait = "give up if processes on other machines have not come in SECONDS (default: 120)"
        p.add_argument("--timeout", type=number, default=120, metavar="SECONDS", help=wait)
    args = p.parse_args(argv)
    args.script, args.headline = name, f"{name}, {script.title}: {script.idea}"
    args.command = command_of([f"{name}.py"], argv)
    args.batch_size, args.micro_batch_size = batch_size, micro_batch_size
    choose(args, task)
    if args.accelerator == "cpu":
        bf16.speed_up()
    choose_devices(args, devices, launcher, shares)
    kept.check(args)
    if args.record:
        writable(args.record)
    return args


def quiet(level=logging.WARNING):
    """Silences Fabric's messages about processes and precision, which Meter prints itself."""
    for name in ("lightning.fabric", "lightning.pytorch"):  # Fabric uses both
        logging.getLogger(name).setLevel(level)


def choose(args, task):
    """Fills in what the preset decides (accelerator, model, data), and what the task derives.

    Raises:
        UserError: there is no such model.
    """
    args.task, args.notes, args.checkpoint_file = task, [], None
    args.accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if not args.preset:
        args.preset = "full" if args.accelerator == "cuda" else "tiny"
        other = next(name for name in PRESETS if name != args.preset)
        there = "a" if args.accelerator == "cuda" else "no"
        args.notes.append(
            f"preset {args.preset}, because there is {there} CUDA device; "
            f"--preset {other} chooses otherwise"
        )
    args.model = args.model or task.presets[args.preset]["model"]
    args.data = args.data or task.presets[args.preset]["data"]
    task.choose(args)
