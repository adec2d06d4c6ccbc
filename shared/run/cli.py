"""The command line of every script: options, and the settings derived from them."""

import argparse
import ast
import contextlib
import logging
import shlex
import sys
import tempfile
from pathlib import Path

from shared.run import errors
from shared.run.errors import UserError

# Meter prints what Fabric would log; imports of torchao and bitsandbytes log needless warnings.
for name in ("lightning.fabric", "lightning.pytorch", "torch.utils._pytree", "bitsandbytes"):
    logging.getLogger(name).setLevel(logging.ERROR)

PRESETS = ("tiny", "full")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError and accepts no abbreviated options."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message):
        raise UserError(f"{message} (see --help)")


def positive(text):
    """Convert an option's text to a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return int(text)


def location(text):
    """Convert an option's text to the path of a file or folder, which need not exist yet."""
    path = Path(text)
    if not text or path.exists() and not (path.is_file() or path.is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a file nor a folder")
    return path


def command_of(program, argv):
    """Return the command line that repeats this run."""
    return shlex.join(["python", *program, *(sys.argv[1:] if argv is None else argv)])


def add_options(parser, *tasks):
    """Add the options that scripts of these tasks share with the ladder."""
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
    add("--devices", type=positive, metavar="N", help=devices)
    add("--epochs", type=positive, default=1, metavar="N", help="passes over the data (default: 1)")
    add("--max-steps", type=positive, metavar="N", help="at most N updates, N batches to test")
    add("--seed", type=int, default=123, help="of data order and random weights (default: 123)")
    add("--no-pretrained", dest="pretrained", action="store_false", help="random weights at first")
    add("--dry-run", action="store_true", help="noise, random weights, 3 updates: no download")


def parse(
    task, file, argv, batch_size, devices=1, micro_batch_size=None, *, launcher=None, shares=None
):
    """Parse a script's command line; return the options and the settings derived from them.

    Args:
        task: the task of the script, such as images.cli.TASK.
        file: the script's __file__; --help shows its docstring.
        batch_size: images or texts per update, over all devices.
        devices: number of devices by default; 1 if the script cannot use more.
        micro_batch_size: images or texts per forward pass and device; None for the whole batch.
        launcher: "torchrun" for a script that leaves starting processes to torchrun.
        shares: number of parts that the devices divide a batch into; None for one per device.

    Raises:
        UserError: an option is unknown, out of range, or does not fit this script or machine.
    """
    from shared.memory import bf16  # here: commands that do not train answer without PyTorch
    from shared.run import devices as number_of_devices

    errors.install()
    path = Path(file).resolve()
    docstring = ast.get_docstring(ast.parse(path.read_bytes())) or path.stem
    parser = Parser(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, task)
    add = parser.add_argument
    add("--record", type=location, metavar="FILE", help="append the measurements as JSON")
    save = f"write the model to DIR, {task.saved_help}; during the run, write checkpoints there"
    add("--save", type=location, metavar="DIR", help=save)
    add("--save-minutes", type=float, default=15, metavar="N", help="per checkpoint (default: 15)")
    resume = "resume from the checkpoint in --save DIR, if any; repeat the other options"
    add("--resume", action="store_true", help=resume)
    args = parser.parse_args(argv)
    args.script = f"{path.parent.name}/{path.stem}"
    args.headline = f"{args.script}, {docstring.splitlines()[0].partition(', ')[2].rstrip('.')}"
    args.command = command_of([f"{args.script}.py"], argv)
    args.batch_size, args.micro_batch_size = batch_size, micro_batch_size
    choose(args, task)
    if args.accelerator == "cpu":
        bf16.speed_up()
    number_of_devices.set_number(args, devices, launcher)
    args.shares = shares or args.world_size
    if args.resume and not args.save:
        raise UserError("--resume reads the checkpoint in --save DIR; add --save DIR")
    if not 0 <= args.save_minutes < float("inf"):
        raise UserError(f"--save-minutes {args.save_minutes} is not a number of minutes")
    if args.resume and is_finished(args.save):
        done = f"{args.save} holds the model of a finished run, so there is nothing to resume"
        parser.exit(0, f"{done}\n" if errors.is_first() else "")
    keep_apart(args, args.save, args.record)
    if errors.is_first():
        if args.record:
            try_writing(args.record)
        if args.save:
            try_writing(args.save, is_folder=True)
    return args


def is_finished(folder):
    """Return whether a folder holds the model of a run, and no checkpoint to go on from."""
    saved = (folder / "config.json").exists() and any(folder.glob("model*.safetensors"))
    return saved and not any(folder.glob("checkpoint-*"))


def try_writing(place, is_folder=False):
    """Raise UserError if a file, or files in a folder, cannot be written; leave no trace.

    To be called before the work whose results go there, which would be lost. Missing folders are
    no error: whoever writes the results makes them.
    """
    folder = place if is_folder else place.parent
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir()
        if place.exists() and not is_folder:
            place.open("a").close()
        with tempfile.TemporaryFile(dir=folder) as some:
            some.write(b"-")  # on a full disk, files can be made, but not filled
    except OSError as error:
        raise UserError(f"{place} cannot be written: {error.strerror}") from None
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


def keep_apart(args, *outputs):
    """Raise UserError if an output path is in a folder that --data or --model reads, or equal."""
    read = [location(text).resolve() for text in (args.data, args.model) if Path(text).exists()]
    if inside := [o for o in outputs if o and any(map(o.resolve().is_relative_to, read))]:
        raise UserError(f"{inside[0]} would be written into what --data or --model reads")


def choose(args, task):
    """Set accelerator ("cuda" or "cpu"), preset, model and data; then call task.choose()."""
    import torch

    args.task, args.notes = task, []
    if not 0 <= args.seed < 2**32:  # as NumPy accepts it
        raise UserError(f"--seed {args.seed} is not from 0 to {2**32 - 1}")
    if "" in (args.data, args.model):
        raise UserError("--data or --model is empty; is a variable of the shell not set?")
    args.accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if not args.preset:
        cuda = args.accelerator == "cuda"
        args.preset, other = ("full", "tiny") if cuda else ("tiny", "full")
        because = f"preset {args.preset}, because there is {'a' if cuda else 'no'} CUDA device"
        args.notes.append(f"{because}; --preset {other} overrides this")
    if args.dry_run:
        args.pretrained, args.max_steps = False, args.max_steps or 3
    args.model = args.model or task.presets[args.preset]["model"]
    args.data = args.data or ("fake" if args.dry_run else task.presets[args.preset]["data"])
    task.choose(args)
