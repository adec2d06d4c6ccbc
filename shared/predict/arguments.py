"""The options of a script in a simulation, as its command line and its data would give them."""

import types

from shared.cli import UserError
from shared.common import options as common
from shared.predict.limits import reasonable
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
        UserError: there is no such model, or a size does not fit another.
    """
    task, micro = script.cli.TASK, getattr(script, "MICRO_BATCH_SIZE", None)
    args = types.SimpleNamespace(
        script=name,
        preset=options.preset,
        model=options.model,
        data="fake",
        pretrained=False,
        seed=123,
        max_length=options.max_length,
        trust_remote_code=options.trust_remote_code,
        input_shapes=options.input_shapes,
    )
    common.choose(args, task)
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
    if args.batch_size % args.world_size:
        raise UserError(
            f"{name}: a batch of {args.batch_size} {task.unit} does not divide by "
            f"{args.world_size} devices; choose --batch-size or --devices so that it does"
        )
    here = args.batch_size // args.shares
    if micro and options.micro_batch_size and args.micro_batch_size > here:
        raise UserError(
            f"{name}: --micro-batch-size {args.micro_batch_size}: a device gets only {here} "
            f"{task.unit} of a batch; choose a larger --batch-size"
        )
    reasonable(args)
    return args


def explained(parallelize, args):
    """Returns a script's parallelize(), made to raise a UserError of one line if it fails."""

    def wrapper(model, mesh):
        try:
            return parallelize(model, mesh)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            why = str(error).splitlines()[0]
            n = args.world_size
            raise UserError(
                f"{args.script} cannot shard {args.model} over {n} devices: {why}"
            ) from error

    return wrapper
