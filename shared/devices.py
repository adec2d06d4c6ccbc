"""The number of devices of a script: set by torchrun, by --devices, or by the script's default."""

import ctypes
import os
import signal
import sys

import torch

from shared.errors import UserError

PROCESS = 550_000_000  # bytes that a process of a tiny run needs on a CPU, most of it for PyTorch


def set_number(args, default, launcher):
    """Set args.devices (per machine), args.num_nodes and args.world_size; adapt args.batch_size.

    Args:
        args: the parsed options, with accelerator, batch_size and notes.
        default: number of devices by default; 1 if the script cannot use more.
        launcher: "torchrun" for a script that leaves starting processes to torchrun, or None.

    Raises:
        UserError: there are fewer devices than asked for, or they do not divide the batch.
    """
    started = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # processes, set by torchrun
    args.num_nodes = 1
    if started and default > 1:  # a script for one device trains alone in each process
        args.num_nodes = int(os.environ["WORLD_SIZE"]) // started
    args.devices = _number(args, default, launcher, started)
    args.world_size = args.devices * args.num_nodes
    if args.batch_size < args.world_size:
        args.batch_size = args.world_size
        args.notes.append(f"batch size raised to {args.batch_size}: one per device")
    if args.batch_size % args.world_size:
        batch = f"a batch of {args.batch_size} {args.task.unit}"
        raise UserError(f"{batch} is not divisible by {args.world_size} devices")
    if sys.platform == "linux" and (started or int(os.environ.get("LOCAL_RANK", 0))):
        # Die with the parent: if killed, torchrun or Fabric's first process cannot end the others.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _number(args, default, launcher, started):
    """Return the number of devices per machine."""
    gpus = torch.cuda.device_count() if args.accelerator == "cuda" else None
    wanted = started or args.devices or default
    if default == 1:
        if wanted > 1:
            args.notes.append("this script uses one device; others, from 08_fsdp on, use several")
        return 1
    if started:
        return started
    if launcher:
        return _alone(args, f"{launcher} --nproc-per-node {args.devices or gpus or default}")
    if args.devices:
        check_room(args.devices, gpus)
        return args.devices
    if gpus and wanted > gpus:
        args.notes.append(f"{wanted} GPUs wanted, {gpus} here")
        return next(n for n in range(gpus, 0, -1) if args.batch_size % n == 0)
    return wanted


def _alone(args, command):
    """Set the variables that torchrun would set for a single process; return 1."""
    start = f"{command} {args.script}.py"
    if (args.devices or 1) > 1:
        raise UserError(f"this script does not start processes itself; run {start}")
    args.notes.append(f"one process; {start} starts more")
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    os.environ.update(alone, MASTER_ADDR="localhost", MASTER_PORT="0")
    return 1


def check_room(wanted, gpus):
    """Raise UserError if there are fewer than `wanted` GPUs, or on a CPU too little memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = memory // PROCESS
    if wanted > (gpus or most):
        room = f"there are {gpus} GPUs" if gpus else f"there is memory for {most} processes at most"
        raise UserError(f"--devices {wanted}: {room}")
