"""What every script takes from its command line, on how many devices it trains, how it ends."""

import argparse
import ast
import ctypes
import logging
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import torch

from shared.memory import bf16

# Meter says what Fabric would; torchao has PyTorch warn of what it does.
for name in ("lightning.fabric", "lightning.pytorch", "torch.utils._pytree"):
    logging.getLogger(name).setLevel(logging.ERROR)

PRESETS = ("tiny", "full")
PROCESS = 550_000_000  # bytes that a tiny training needs without a GPU; most of it is PyTorch


class UserError(ValueError):
    """A mistake that the user can correct; its text, one line, says what would be right."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError, and takes no abbreviated options."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message):
        raise UserError(f"{message} (see --help)")


def positive(text):
    """Converts an option's text to a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return int(text)


def location(text):
    """Converts an option's text to the path of a file or folder, or of one that is to be made."""
    found = Path(text)
    if not text or found.exists() and not (found.is_file() or found.is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a file nor a folder")
    return found


def explain(kind, error, trace):
    """Ends a program after an exception: in one line where its user can put things right.

    The exit code is then 2; 130 after Ctrl-C, 1 after any other error. It ends at once: a regular
    exit would wait for processes that no longer respond.
    """
    code, text = 1, None
    if kind is KeyboardInterrupt:
        code, text = 130, "interrupted"
    elif issubclass(kind, OSError) and error.filename:
        code, text = 2, f"{error.filename}: {error.strerror}"
    elif issubclass(kind, (UserError, argparse.ArgumentTypeError, torch.OutOfMemoryError)):
        # An error in a DataLoader's worker comes with the worker's traceback, and ends with it.
        code, text = 2, str(error).strip().splitlines()[-1].split("UserError: ")[-1]
    if int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0))):
        time.sleep(2)  # the first process says what all have noticed, and takes the others with it
    sys.stdout.flush()
    sys.stderr = sys.__stderr__  # PyTorch calls this with its own, and shows it afterwards
    program = Path(sys.argv[0].removesuffix("/__main__.py")).name  # such as ladder
    if text:
        print(f"\n{program}: {text}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)
    os._exit(code)


sys.excepthook = explain


def command_of(program, argv):
    """Returns what a user would type to repeat this."""
    return shlex.join(["python", *program, *(sys.argv[1:] if argv is None else argv)])


def add_options(parser, *tasks):
    """Adds the options that scripts and ladder share, of scripts about some tasks."""
    add = parser.add_argument
    what = "{model} on {data}".format
    tiny, full = (" or ".join(what(**task.presets[name]) for task in tasks) for name in PRESETS)
    preset = f"tiny: {tiny}, for any computer; full: {full} (default: full with CUDA, else tiny)"
    add("--preset", choices=PRESETS, help=preset)
    for name, metavar in (("model", "NAME"), ("data", "WHAT")):
        text = "; ".join(getattr(task, f"{name}_help") for task in tasks)
        add(f"--{name}", metavar=metavar, help=f"{text} (default: the preset's)")
    for task in tasks:
        task.add_options(parser)
    devices = "GPUs per machine, or processes on a CPU; from 08_fsdp on (default: 4)"
    steps = "stop after N updates; evaluations then read N batches at most"
    order = "for the order of the data and for random weights (default: 123)"
    add("--devices", type=positive, metavar="N", help=devices)
    add("--epochs", type=positive, default=1, metavar="N", help="passes over the data (default: 1)")
    add("--max-steps", type=positive, metavar="N", help=steps)
    add("--seed", type=int, default=123, help=order)
    random = "start from random weights"
    add("--no-pretrained", dest="pretrained", action="store_false", help=random)


def parse(
    task, file, argv, batch_size, devices=1, micro_batch_size=None, *, launcher=None, shares=None
):
    """Parses a script's command line.

    Args:
        task: what the script is about, such as images.cli.TASK.
        file: the script, as in __file__; its docstring is for --help.
        argv: list of arguments, or None for the command line's.
        batch_size: images, or texts, per update, over all devices.
        devices: how many the script is meant for; 1 if it cannot use more.
        micro_batch_size: images per forward pass and device; None for the whole batch.
        launcher: "torchrun" for a script that leaves it to torchrun to start processes.
        shares: into how many shares the devices divide a batch; None for one for each of them.

    Returns the options, and what choose() and _choose_devices() derive from them.

    Raises:
        UserError: an option is unknown, out of range, or does not fit this script or machine.
    """
    path = Path(file).resolve()
    docstring = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    parser = Parser(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, task)
    add = parser.add_argument
    add("--record", type=location, metavar="FILE", help="append what was measured, as JSON")
    save = f"write the model to DIR, {task.saved_help}; meanwhile, checkpoints of the training"
    add("--save", type=location, metavar="DIR", help=save)
    minutes = "minutes between two checkpoints (default: 15)"
    add("--save-minutes", type=float, default=15, metavar="N", help=minutes)
    resume = "go on from the checkpoint in --save DIR, if there is one; the rest as before"
    add("--resume", action="store_true", help=resume)
    args = parser.parse_args(argv)
    args.script = f"{path.parent.name}/{path.stem}"
    args.headline = f"{args.script}, {docstring.splitlines()[0].partition(', ')[2].rstrip('.')}"
    args.command = command_of([f"{args.script}.py"], argv)
    args.batch_size, args.micro_batch_size = batch_size, micro_batch_size
    choose(args, task)
    if args.accelerator == "cpu":
        bf16.speed_up()
    _choose_devices(args, devices, launcher)
    args.shares = shares or args.world_size
    if args.resume and not args.save:
        raise UserError("--resume goes on from what --save DIR has written; add --save DIR")
    keep_apart(args, args.save, args.record)
    if args.record:  # what cannot be written shall not be noticed after the training
        args.record.open("a").close()
    return args


def keep_apart(args, *outputs):
    """Refuses to write into what --data or --model reads."""
    read = [location(text).resolve() for text in (args.data, args.model) if Path(text).exists()]
    if inside := [o for o in outputs if o and any(map(o.resolve().is_relative_to, read))]:
        raise UserError(f"{inside[0]} would be written into what --data or --model reads")


def choose(args, task):
    """Fills in accelerator ("cuda" or "cpu"), preset, model, data, and what task.choose() does."""
    args.task, args.notes = task, []
    args.accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if not args.preset:
        cuda = args.accelerator == "cuda"
        args.preset, other, a = ("full", "tiny", "a") if cuda else ("tiny", "full", "no")
        because = f"preset {args.preset}, because there is {a} CUDA device"
        args.notes.append(f"{because}; --preset {other} chooses otherwise")
    args.model = args.model or task.presets[args.preset]["model"]
    args.data = args.data or task.presets[args.preset]["data"]
    task.choose(args)


def _choose_devices(args, default, launcher):
    """Fills in devices (per machine), num_nodes, world_size: by torchrun, --devices or default."""
    started = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # by torchrun
    args.num_nodes = int(os.environ["WORLD_SIZE"]) // started if started else 1
    here = torch.cuda.device_count() if args.accelerator == "cuda" else None
    wanted = started or args.devices or default
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // PROCESS
    if default == 1 and wanted > 1:
        args.notes.append("this script trains on one device; 08_fsdp and later share the work")
        wanted = 1
    elif launcher and not started:
        start = f"{launcher} --nproc-per-node {args.devices or here or default} {args.script}.py"
        if (args.devices or 1) > 1:
            raise UserError(f"this script starts no further processes; {start} does")
        args.notes.append(f"one process; {start} starts more")
        wanted = 1
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}  # as torchrun would tell it
        os.environ.update(alone, MASTER_ADDR="localhost", MASTER_PORT="0")
    elif not here and args.devices and wanted > most:
        raise UserError(f"--devices {wanted}: there is memory for {most} processes at most")
    elif here and wanted > here and args.devices:
        raise UserError(f"--devices {wanted}: there are {here} GPUs")
    elif here and wanted > here and not started:
        args.notes.append(f"{wanted} GPUs wanted, {here} here")
        wanted = next(n for n in range(here, 0, -1) if args.batch_size % n == 0)
    if args.batch_size % (wanted * args.num_nodes):
        batch = f"a batch of {args.batch_size} {args.task.unit}"
        raise UserError(f"{batch} does not divide by {wanted * args.num_nodes} devices")
    args.devices, args.world_size = wanted, wanted * args.num_nodes
    if sys.platform == "linux" and (started or int(os.environ.get("LOCAL_RANK", 0))):
        # A torchrun, or first process of Fabric, that is killed cannot end the others itself.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
