"""What torchrun, SLURM or a user puts into the environment: numbers that fit together.

It is looked at before anything else is imported, because Lightning reads some of these variables
while it is imported, and would end in a traceback if one is no number.
"""

import contextlib
import os
import re

from shared.common.errors import UserError, shown

OF_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Set by `fabric run`; they would win over what a script says.
OF_FABRIC = ("LT_ACCELERATOR", "LT_DEVICES", "LT_NUM_NODES", "LT_PRECISION", "LT_STRATEGY")
# The smallest and the largest value of each.
NUMBERS = dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK"), (0, 10**6))
NUMBERS |= dict.fromkeys(("SLURM_PROCID", "JSM_NAMESPACE_RANK"), (0, 10**6))
NUMBERS |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS"), (1, 10**6))
NUMBERS |= dict.fromkeys(("MASTER_PORT", "STANDALONE_PORT"), (0, 2**16 - 1))
NUMBERS["TORCH_DIST_INIT_BARRIER"] = (0, 1)

PARENT = "LADDER_PARENT"  # process id of a script that starts the further ones itself, by Fabric
_set_aside = {}


def set_aside():
    """Takes those variables out of the environment that are no numbers; check() tells of them."""
    for name in NUMBERS:
        if name in os.environ and _wrong(name, os.environ[name]):
            _set_aside[name] = os.environ.pop(name)


def check():
    """Makes sure that the variables are numbers, and fit together.

    Raises:
        UserError: one is not, or does not fit another.
    """
    for name in NUMBERS:
        value = os.environ.get(name, _set_aside.get(name))
        if value is not None and (why := _wrong(name, value)):
            raise UserError(f"the environment has {name}={shown(value)}, {why}; {_right(name)}")
    if "LOCAL_WORLD_SIZE" not in os.environ:
        return
    if "WORLD_SIZE" not in os.environ:
        raise UserError(
            f"the environment has LOCAL_WORLD_SIZE={os.environ['LOCAL_WORLD_SIZE']}, but no "
            f"WORLD_SIZE; {_right('LOCAL_WORLD_SIZE')}"
        )
    here, everywhere = number("LOCAL_WORLD_SIZE"), number("WORLD_SIZE")
    if everywhere % here:
        raise UserError(
            f"the environment has WORLD_SIZE={everywhere}, which is no multiple of "
            f"LOCAL_WORLD_SIZE={here}; every machine must have as many processes"
        )
    for rank, size in (("RANK", everywhere), ("LOCAL_RANK", here)):
        of = "WORLD_SIZE" if rank == "RANK" else "LOCAL_WORLD_SIZE"
        if number(rank, 0) >= size:
            raise UserError(
                f"the environment has {rank}={number(rank)}, but {of}={size}: ranks are counted "
                f"from 0 to {size - 1}"
            )
    both = "RANK" in os.environ and "LOCAL_RANK" in os.environ
    if both and number("RANK") % here != number("LOCAL_RANK"):
        raise UserError(
            f"the environment has RANK={number('RANK')}, LOCAL_RANK={number('LOCAL_RANK')} and "
            f"LOCAL_WORLD_SIZE={here}, which do not fit together: LOCAL_RANK must be "
            f"{number('RANK') % here}"
        )


def check_complete():
    """Makes sure that a script that is one of several processes knows all it must know.

    Raises:
        UserError: variables are missing.
    """
    check()
    for name in OF_FABRIC:
        if name in os.environ:
            raise UserError(
                f"the environment has {name}, which changes what this script tells Fabric; unset it"
            )
    if started_by_fabric() or number("WORLD_SIZE") == 1:
        return
    several = [name for name in OF_TORCHRUN[:4] if name in os.environ]
    missing = [name for name in OF_TORCHRUN if not os.environ.get(name)]
    if several and missing:
        there = ", ".join(f"{name}={os.environ[name]}" for name in several)
        raise UserError(
            f"the environment has {there}, but no {', '.join(missing)}; {_right(several[0])}"
        )


def number(name, default=None):
    """Returns a variable as a number, the default if it is not there or not a number."""
    value = os.environ.get(name)
    return default if value is None or _wrong(name, value) else int(value)


def rank():
    """Returns the number of this process, 0 for the first one, which speaks for all."""
    return number("RANK", number("LOCAL_RANK", 0))


def started_by_fabric():
    """Tells whether the first process of this script has started this one."""
    return os.environ.get(PARENT) == str(os.getppid()) and number("LOCAL_RANK", 0) > 0


def _wrong(name, value):
    least, most = NUMBERS[name]
    if value == "":
        return "which is empty"
    if not re.fullmatch("[0-9]{1,9}", value):
        with contextlib.suppress(ValueError):
            if int(value) < least:
                return f"which is less than {least}"
        return "which is no whole number"
    if not least <= int(value) <= most:
        return f"which is not from {least} to {most}"
    return None


def _right(name):
    if name.startswith("SLURM"):
        return f"SLURM sets it; outside of a job, unset {name}"
    return f"torchrun sets all that is needed; without it, unset {name}"
