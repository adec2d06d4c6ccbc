"""Runs Python commands in forks of one process, which imports once what all of them need.

Usage: python tests/forks.py COMMANDS.json OUT.json
COMMANDS.json is a list of commands, each a list of words without "python". OUT.json gets for each
its exit code and what it wrote to stderr. What the imports say is on this process' own stderr.

Usage: python tests/forks.py N SCRIPT [OPTION...]
Runs a script as `torchrun --nproc-per-node N` would.

Usage: python tests/forks.py torchrun [OPTION...] SCRIPT [OPTION...]
Runs torchrun as often as its --nnodes says, as srun does in a SLURM job on so many machines.
"""

import importlib
import json
import os
import runpy
import socket
import sys
import tempfile
import traceback
from pathlib import Path

import torch
from torch.distributed import run as torchrun
from torch.distributed.launcher.api import elastic_launch
from torch.multiprocessing import start_processes


def run(command):
    """Runs a command as `python` would; returns its exit code and its stderr."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.dup2(said.fileno(), sys.stderr.fileno())
            _one_thread()
            os._exit(_exit_code(command))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return code, said.read()


def _exit_code(command):
    try:
        _become(command)
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _become(command):
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def side_by_side(n, function, *arguments):
    """Calls a function in n processes, which find in the environment what torchrun puts there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "GROUP_RANK": 0}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    rest = ({**sizes, **meeting}, function, arguments)
    start_processes(_call, rest, nprocs=n, start_method="fork")


def _call(rank, variables, function, arguments):
    variables = {**variables, "RANK": rank, "LOCAL_RANK": rank}
    _set(variables)
    _one_thread()
    function(*arguments)


def _one_thread():
    # A fork gets a new pool of threads at its first use, which must not be by two threads at once.
    torch.set_num_threads(1)


def _set(variables):
    os.environ.update({name: str(value) for name, value in variables.items()})


def of_slurm(machines, machine):
    """Returns what srun puts into the environment of the task on one of some machines.

    Source: https://slurm.schedmd.com/srun.html
    """
    job = {"SLURM_JOB_ID": 4711, "SLURM_JOB_NAME": "fsdp", "SLURM_NNODES": machines}
    job |= {"SLURM_NTASKS": machines, "SLURM_NPROCS": machines, "SLURM_NTASKS_PER_NODE": 1}
    job |= {"SLURM_JOB_NODELIST": f"node[1-{machines}]", "SLURM_CPUS_PER_TASK": 16}
    task = {"SLURM_PROCID": machine, "SLURM_NODEID": machine, "SLURM_LOCALID": 0}
    return {**job, **task, "SLURM_STEP_ID": 0}


def torchruns(words):
    """Runs torchrun on as many machines as its options say, all of them this one."""
    options = torchrun.parse_args(words)
    machines, command = int(options.nnodes), [options.training_script]
    options.start_method = "fork"
    command += options.training_script_args
    start_processes(_torchrun, (machines, options, command), nprocs=machines, start_method="fork")


def _torchrun(machine, machines, options, command):
    _set(of_slurm(machines, machine))
    config, _, _ = torchrun.config_from_args(options)
    elastic_launch(config, _succeed)(command)


def _succeed(command):
    # In a fork: what torchrun starts must return, but scripts end their process.
    code, said = run(command)
    assert code == 0, said


if __name__ == "__main__":
    by_torchrun, several = sys.argv[1] == "torchrun", sys.argv[1].isdigit()
    needed = ("shared.images.cli", "shared.text.cli", "shared.metrics", "lightning.fabric")
    for name in (
        *needed,
        *(() if by_torchrun or several else ("shared.predict.command", "shared.records.bars")),
    ):
        importlib.import_module(name)
    if by_torchrun:
        torchruns(sys.argv[2:])
    elif several:
        side_by_side(int(sys.argv[1]), _become, sys.argv[2:])
    else:
        commands, out = map(Path, sys.argv[1:])
        out.write_text(json.dumps([run(command) for command in json.loads(commands.read_text())]))
