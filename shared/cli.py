"""The few options that every stage has."""

import argparse
import contextlib
import logging
import os
import shlex
import sys
from pathlib import Path

import torch

from shared import UserError, images, stages
from shared.ending import run as run  # scripts end with cli.run(main)

PRESETS = ("tiny", "full")


class Parser(argparse.ArgumentParser):
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


def seed(text):
    """Converts an option's text to a seed, as all random generators take it.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    with contextlib.suppress(ValueError):
        if 0 <= int(text) < 2**32:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 to {2**32 - 1}")


def parser(description, *tasks):
    """Returns a parser with the options that stages and ladder share.

    Args:
        description: for --help.
        tasks: what the stages are about, shared.images or shared.text or both.
    """
    p = Parser(description=description, allow_abbrev=False)
    tiny, full = (" or ".join("{model} on {data}".format(**task.PRESETS[preset]) for task in tasks) for preset in PRESETS)
    p.add_argument("--preset", choices=PRESETS, help=f"tiny: {tiny}, seconds on a laptop; full: {full} (default: full with CUDA, else tiny)")
    p.add_argument("--model", metavar="NAME", help="; ".join(task.MODEL_HELP for task in tasks) + " (default: the preset's)")
    p.add_argument("--data", metavar="WHAT", help="; ".join(task.DATA_HELP for task in tasks) + " (default: the preset's)")
    for task in tasks:
        task.add_options(p, alone=len(tasks) == 1)
    p.add_argument("--devices", type=positive, metavar="N", help="GPUs per machine, or processes on a CPU; from 08_fsdp on (default: 4)")
    p.add_argument("--epochs", type=positive, default=1, metavar="N", help="passes over the training data (default: 1)")
    p.add_argument("--max-steps", type=positive, metavar="N", help="stop after N updates; evaluations then read N batches at most")
    p.add_argument("--seed", type=seed, default=123, help="for the order of the data and for random weights (default: 123)")
    p.add_argument("--no-pretrained", dest="pretrained", action="store_false", help="start from random weights")
    return p


def parse(file, argv, *, batch_size, micro_batch_size=None, devices=1, launcher=None, precision=None, task=images):
    """Parses a stage's command line.

    Args:
        file: the script, as in __file__; its docstring is for --help.
        argv: list of arguments, or None for the command line's.
        batch_size: images, or texts, per update, over all devices.
        micro_batch_size: how many of them per forward pass and device, or None for the whole batch at once.
        devices: how many devices the stage is meant for; 1 if it cannot use more.
        launcher: "torchrun" for a script that leaves it to torchrun to start processes; None if it does so itself. Without
            torchrun such a script is a single process, and finds in the environment what torchrun would put there.
        precision: what the script computes in, in Fabric's words, if Fabric does not know; 16-mixed is bf16 on a CPU.
        task: what the stage is about, shared.images or shared.text.

    Returns:
        argparse.Namespace with the options and, derived from them: accelerator ("cuda" or "cpu"), devices (per
        machine), num_nodes, world_size, precision, adam_lr, notes (lines that tell what was chosen), and what task.choose() fills in.

    Raises:
        UserError: an option is unknown, out of range, or does not fit this stage or this machine.
    """
    for name in ("lightning.fabric", "lightning.pytorch"):  # Fabric uses both; Meter tells about processes and precision
        logging.getLogger(name).setLevel(logging.WARNING)
    script = Path(file).resolve()
    p = parser(stages.idea(script), task)
    p.add_argument("--record", type=Path, metavar="FILE", help="append what was measured to FILE, one JSON object per line")
    args = p.parse_args(argv)
    args.idea, args.stage, args.script = p.description, script.parent.name, script.stem
    args.command = shlex.join(["python", f"{args.stage}/{script.name}", *(sys.argv[1:] if argv is None else argv)])
    args.batch_size, args.micro_batch_size = batch_size, micro_batch_size
    choose(args, task)
    args.precision = precision_on(args.accelerator, precision)
    _choose_devices(args, devices, launcher)
    if args.record:
        writable(args.record)
    return args


def choose(args, task):
    """Fills in what the preset decides (accelerator, model, data), and what the task derives from it.

    Raises:
        UserError: there is no such model.
    """
    args.task, args.notes = task, []
    args.accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if not args.preset:
        args.preset = "full" if args.accelerator == "cuda" else "tiny"
        other = next(name for name in PRESETS if name != args.preset)
        args.notes.append(f"preset {args.preset}, because there is {'a' if args.accelerator == 'cuda' else 'no'} CUDA device; --preset {other} chooses otherwise")
    args.model = args.model or task.PRESETS[args.preset]["model"]
    args.data = args.data or task.PRESETS[args.preset]["data"]
    task.choose(args)


def precision_on(accelerator, precision):
    """Returns what a precision becomes on an accelerator: autocast has no fp16 on a CPU, and Fabric takes bf16 there."""
    return "bf16-mixed" if (accelerator, precision) == ("cpu", "16-mixed") else precision


def _choose_devices(args, default, launcher):
    started = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # torchrun has started the processes already
    if started:
        args.num_nodes = int(os.environ["WORLD_SIZE"]) // started
        if args.devices not in (None, started, started * args.num_nodes):
            raise UserError(f"--devices {args.devices}: torchrun has started {started} processes on each of {args.num_nodes} machines; leave --devices out")
        if args.accelerator == "cuda" and started > torch.cuda.device_count():
            raise UserError(f"torchrun has started {started} processes, but there are {torch.cuda.device_count()} GPUs here; give --nproc-per-node that many")
        wanted = started
    elif launcher:
        args.num_nodes = wanted = 1
        by_torchrun = f"{launcher} --nproc-per-node {{}} {args.stage}/{args.script}.py".format
        if args.devices not in (None, 1):
            raise UserError(f"--devices {args.devices}: this script starts no further processes; {by_torchrun(args.devices)} does")
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 or _in_batch_job() and int(os.environ["SLURM_NTASKS"]) > 1:
            raise UserError(f"several processes seem to be wanted (WORLD_SIZE, SLURM_NTASKS), but this script works together with what torchrun starts: {by_torchrun('GPUS')}")
        possible = min(default, torch.cuda.device_count()) if args.accelerator == "cuda" else default
        args.notes += [f"one process; {by_torchrun(possible)} starts {possible}"] if possible > 1 else []
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")  # any free port
    else:
        args.num_nodes = 1
        wanted = args.devices or default
        if default > 1 and wanted > 1 and _in_batch_job():
            raise UserError("in a SLURM batch job, start this stage with torchrun: torchrun --nproc-per-node GPUS " + f"{args.stage}/{args.script}.py")
    if default == 1 and started * args.num_nodes > 1:
        raise UserError(f"torchrun has started {started * args.num_nodes} processes, but this script trains on one device; 08_fsdp/train.py and the later ones share the work")
    if default == 1 and wanted > 1:
        args.notes.append(f"{wanted} devices wanted, but this script trains on one; 08_fsdp/train.py and the later ones share the work")
        wanted = 1
    fits = [n for n in range(1, args.batch_size + 1) if args.batch_size % (n * args.num_nodes) == 0]
    if wanted not in fits and (args.devices or started):
        possible = f"possible are {', '.join(map(str, fits))}" if fits else f"{args.num_nodes} machines cannot share it"
        raise UserError(f"--devices {wanted}: a batch of {args.batch_size} {args.task.UNIT} does not divide by {wanted * args.num_nodes}; {possible}")
    args.devices = wanted
    if args.accelerator == "cuda" and not started and wanted > torch.cuda.device_count():
        here = torch.cuda.device_count()
        args.devices = max(n for n in fits if n <= here)
        args.notes.append(f"{wanted} GPUs wanted, {here} here: training on {args.devices}")
    args.world_size = args.devices * args.num_nodes


def _in_batch_job():
    return "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def writable(path):
    """Makes sure that a file can be appended to, before hours are spent on what it is to hold.

    Raises:
        UserError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another file") from None
