"""The options of a script in a simulation, as its command line and its data would give them."""

import types

from shared.cli import UserError, choose
from shared.records import scripts

# The first update makes optimizer states and gradients. The second starts with all of them, and
# every later update holds the same.
STEADY = 2


def one_by_one(name):
    """Returns the module one_by_one of a script's folder."""
    folder = scripts.get(name).folder
    return scripts.Script(f"{folder}/one_by_one", "", "", None, False).load()


def arguments(name, script, options):
    """Returns the options that cli.parse and the data would give a script.

    Args:
        name: of the script.
        script: the module.
        options: jobs.Wanted.

    Raises:
        UserError: there is no such model, or the devices cannot share the batch.
    """
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
