"""How many devices a script trains on: its own constant, --devices or torchrun decides."""

import os

import torch
import torch.distributed as dist

from shared.common import environment, meeting
from shared.common.errors import UserError


def precision_on(accelerator, precision):
    """Returns what a precision becomes on an accelerator, by Fabric's name for it.

    Autocast has no fp16 on a CPU, where Fabric takes bf16 instead.
    """
    return "bf16-mixed" if (accelerator, precision) == ("cpu", "16-mixed") else precision


def choose_devices(args, default, launcher, shares=None):
    """Fills in args.devices (per machine), num_nodes, world_size and shares.

    Args:
        args: with script, accelerator, devices, batch_size, task and notes.
        default, launcher, shares: as devices, launcher and shares of options.parse.

    Raises:
        UserError: the devices that are wanted do not fit the script, the batch or the machine.
    """
    environment.check()
    started = environment.number("LOCAL_WORLD_SIZE", 0)  # by torchrun, before the script
    args.num_nodes = environment.number("WORLD_SIZE") // started if started else 1
    if not started and not launcher:
        environment.check_complete()
    if started:
        wanted = _started_by_torchrun(args, started)
    elif launcher:
        wanted = _one_process(args, default, launcher)
    else:
        wanted = args.devices or default
        if default > 1 and wanted > 1 and _in_batch_job():
            raise UserError(
                "in a SLURM batch job, start this script with torchrun: "
                f"torchrun --nproc-per-node GPUS {args.script}.py; "
                "for several machines, 08_fsdp/README.md has a batch file"
            )
    later = "08_fsdp/train.py and the later ones share the work"
    if default == 1 and started * args.num_nodes > 1:
        n = started * args.num_nodes
        raise UserError(
            f"torchrun has started {n} processes, but this script trains on one device; {later}"
        )
    if not started and (wanted == 1 or default == 1):
        _alone_in_batch_job(default)
    if default == 1 and wanted > 1:
        args.notes.append(f"{wanted} devices wanted, but this script trains on one; {later}")
        wanted = 1
    nodes = args.num_nodes
    fits = [n for n in range(1, args.batch_size + 1) if args.batch_size % (n * nodes) == 0]
    if wanted not in fits and (args.devices or started):
        possible = f"possible are {', '.join(map(str, fits))}"
        raise UserError(
            f"--devices {wanted}: a batch of {args.batch_size} {args.task.unit} does not divide "
            f"by {wanted * nodes}; {possible if fits else f'{nodes} machines cannot share it'}"
        )
    args.devices = wanted
    if args.accelerator == "cuda" and not started and wanted > torch.cuda.device_count():
        here = torch.cuda.device_count()
        args.devices = max(n for n in fits if n <= here)
        args.notes.append(f"{wanted} GPUs wanted, {here} here: training on {args.devices}")
    args.world_size = args.devices * nodes
    args.shares = shares or args.world_size
    met = dist.is_available() and dist.is_initialized()  # by a training in this process before
    if default > 1 and not met:
        _prepare_to_meet(args, started, launcher)


def _prepare_to_meet(args, started, launcher):
    meeting.check_interface()
    if started and args.world_size > 1 and environment.number("RANK") is not None:
        # Fabric asks for the machine's number, if it was not torchrun that started the processes.
        os.environ["NODE_RANK"] = str(environment.number("RANK") // started)
        meeting.meet(args.timeout)
    elif not (started or launcher or "LOCAL_RANK" in os.environ):
        os.environ[environment.PARENT] = str(os.getpid())
        if "MASTER_ADDR" in os.environ or "MASTER_PORT" in os.environ:
            meeting.host_store(args.timeout)  # where Fabric is going to open it


def _alone_in_batch_job(default):
    """Makes Fabric overlook a SLURM job, where it would look for variables that may be missing."""
    if not _in_batch_job():
        return
    if (n := environment.number("SLURM_NTASKS")) > 1:
        this = "this script trains on one device" if default == 1 else "--devices 1 is one process"
        raise UserError(
            f"SLURM starts {n} processes (SLURM_NTASKS={n}), but {this}; pass srun or sbatch "
            "--ntasks 1"
        )
    del os.environ["SLURM_NTASKS"]


def _started_by_torchrun(args, started):
    if args.devices not in (None, started, started * args.num_nodes):
        raise UserError(
            f"--devices {args.devices}: torchrun has started {started} processes on each of "
            f"{args.num_nodes} machines; leave --devices out"
        )
    if args.accelerator == "cuda" and started > torch.cuda.device_count():
        raise UserError(
            f"torchrun has started {started} processes, but there are "
            f"{torch.cuda.device_count()} GPUs here; give --nproc-per-node that many"
        )
    return started


def _one_process(args, default, launcher):
    by_launcher = f"{launcher} --nproc-per-node {{}} {args.script}.py".format
    if args.devices not in (None, 1):
        raise UserError(
            f"--devices {args.devices}: this script starts no further processes; "
            f"{by_launcher(args.devices)} does"
        )
    several = environment.number("WORLD_SIZE", 1) > 1
    if several or _in_batch_job() and environment.number("SLURM_NTASKS") > 1:
        raise UserError(
            "several processes seem to be wanted (WORLD_SIZE, SLURM_NTASKS), but this script "
            f"works together with what torchrun starts: {by_launcher('GPUS')}"
        )
    here = torch.cuda.device_count() if args.accelerator == "cuda" else default
    possible = min(default, here)
    if possible > 1:
        args.notes.append(f"one process; {by_launcher(possible)} starts {possible}")
    by_torchrun = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost"}
    os.environ.update({name: str(value) for name, value in by_torchrun.items()})
    os.environ["MASTER_PORT"] = "0"  # any that is free
    return 1


def _in_batch_job():
    interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return "SLURM_NTASKS" in os.environ and not interactive
