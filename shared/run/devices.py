"""The number of devices of a script: set by torchrun, by --devices, or by the script's default."""

import ctypes
import os
import signal
import sys

import torch

from shared.run.errors import UserError

OF_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # numbers that it sets
PROCESS = 550_000_000  # bytes that a process of a tiny run needs on a CPU, most of it for PyTorch


def set_number(args, default, launcher):
    """Set args.devices (per machine), args.num_nodes and args.world_size; adapt args.batch_size.

    For default and launcher, see cli.parse(): its devices and launcher.
    """
    for name in (*OF_TORCHRUN, "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_PORT"):
        if not (text := os.environ.get(name, "0")).isdecimal():
            raise UserError(f"{name}={text}: this variable must be a number, or not be set")
    started = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # processes, set by torchrun
    args.num_nodes = 1
    if started and default > 1:  # a script for one device trains alone in each process
        rank, local, world = (int(os.environ.get(name, -1)) for name in OF_TORCHRUN)
        if not (0 <= local < started <= world and 0 <= rank < world) or world % started:
            wrong = f"LOCAL_WORLD_SIZE={started} does not go with {', '.join(OF_TORCHRUN)}"
            raise UserError(f"{wrong} as they are; let torchrun set all, or none")
        args.num_nodes = world // started
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
        start = f"{launcher} --nproc-per-node {args.devices or gpus or default} {args.script}.py"
        if (args.devices or 1) > 1:
            raise UserError(f"this script does not start processes itself; run {start}")
        args.notes.append(f"one process; {start} starts more")
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}  # as torchrun would
        os.environ.update(alone, MASTER_ADDR="localhost", MASTER_PORT="0")
        return 1
    if args.devices:
        check_room(args.devices, gpus)
        return args.devices
    if gpus and wanted > gpus:
        args.notes.append(f"{wanted} GPUs wanted, {gpus} here")
        return next(n for n in range(gpus, 0, -1) if args.batch_size % n == 0)
    return wanted


def check_room(wanted, gpus):
    """Raise UserError if there are fewer than `wanted` GPUs, or on a CPU too little memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = memory // PROCESS
    if wanted > (gpus or most):
        room = f"there are {gpus} GPUs" if gpus else f"there is memory for {most} processes at most"
        raise UserError(f"--devices {wanted}: {room}")
