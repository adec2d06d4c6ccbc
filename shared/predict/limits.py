"""Refuses sizes that no GPU of the next years holds, or that would be simulated for hours."""

from shared.cli import UserError
from shared.memory.blocks import tensors

CARD_GB = 10_000  # the largest GPUs of 2025 have 288
# Activations take more than a hundred times the memory of the inputs, in all models here.
INPUTS_GB = CARD_GB / 100
MICRO_BATCHES = 1000  # in an update; a simulation takes a fraction of a second for each
DEVICES = 1024  # the simulated ones of a process talk to no others, but it keeps a list of them


def reasonable_card(option, gb):
    """Makes sure that there can be a GPU with so much memory.

    Raises:
        UserError: there cannot.
    """
    if gb > CARD_GB:
        raise UserError(
            f"{option} {gb:g}: no GPU has that much memory; it is in GB, such as 24 or 80"
        )


def reasonable_peak(script, gb):
    """Makes sure that a GPU can hold what a script needs, in GB.

    Raises:
        UserError: none can.
    """
    if gb > CARD_GB:
        raise UserError(
            f"{script} would need {gb:,.0f} GB on a GPU, and no GPU has that; choose smaller "
            "sizes, or other scripts"
        )


def reasonable(args):
    """Makes sure that sizes are worth a simulation.

    Args:
        args: as simulation.arguments() returns them.

    Raises:
        UserError: they are not.
    """
    if args.world_size > DEVICES:
        raise UserError(
            f"--devices {args.world_size}: so many are not simulated; {DEVICES:,} is the most"
        )
    inputs, _ = args.task.fake_batch(args, 1, 0, "meta")
    share = args.batch_size // args.shares
    gb = sum(t.nbytes for t in tensors(inputs)) * share / 1e9
    if gb > INPUTS_GB:
        raise UserError(
            f"{args.script}: {share:,} {args.task.unit} per device are {gb:,.0f} GB before a model "
            "has seen them, more than any GPU can train with; choose smaller sizes"
        )
    micro_batches = -(-share // (args.micro_batch_size or share))
    if micro_batches > MICRO_BATCHES:
        raise UserError(
            f"{args.script}: an update of {micro_batches:,} micro-batches would be simulated for "
            f"hours, and needs hardly more memory than one of {MICRO_BATCHES:,}; choose a smaller "
            "--batch-size, or a larger --micro-batch-size"
        )
