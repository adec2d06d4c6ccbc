"""Runs Python commands in forks of one process, which imports once what all of them need.

Usage: python tests/forks.py COMMANDS.json OUT.json
COMMANDS.json is a list of commands, each a list of words without "python". OUT.json gets for each
its exit code and what it wrote to stderr. What the imports say is on this process' own stderr.

Usage: python tests/forks.py N SCRIPT [OPTION...]
Runs a script as `torchrun --nproc-per-node N` would; MxN is for N on each of M machines.
"""

import importlib
import json
import os
import re
import runpy
import socket
import sys
import tempfile
import traceback
from pathlib import Path

import torch
from torch.multiprocessing import start_processes


def run(command):
    """Runs a command as `python` would; returns its exit code and its stderr."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.dup2(said.fileno(), sys.stderr.fileno())
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


def side_by_side(n, function, *arguments, machines=1):
    """Calls a function in processes, which find in the environment what torchrun puts there.

    Args:
        n: how many on each machine.
        function, arguments: what to call.
        machines: how many there seem to be.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = {"WORLD_SIZE": n * machines, "LOCAL_WORLD_SIZE": n}
    everywhere = {**sizes, "TORCHELASTIC_RUN_ID": "none"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    rest = ({**everywhere, **meeting}, function, arguments)
    start_processes(_call, rest, nprocs=n * machines, start_method="fork")


def _call(rank, variables, function, arguments):
    machine, local_rank = divmod(rank, variables["LOCAL_WORLD_SIZE"])
    variables = {**variables, "RANK": rank, "LOCAL_RANK": local_rank, "GROUP_RANK": machine}
    os.environ.update({name: str(value) for name, value in variables.items()})
    # A fork gets a new pool of threads at its first use, which must not be by two threads at once.
    torch.set_num_threads(1)
    function(*arguments)


if __name__ == "__main__":
    several = re.fullmatch(r"(\d+x)?(\d+)", sys.argv[1])
    needed = ("shared.images.cli", "shared.text.cli", "shared.metrics")
    for name in (*needed, *(() if several else ("shared.predict.command", "shared.records.bars"))):
        importlib.import_module(name)
    if several:
        machines = int((several[1] or "1x").removesuffix("x"))
        side_by_side(int(several[2]), _become, sys.argv[2:], machines=machines)
    else:
        commands, out = map(Path, sys.argv[1:])
        out.write_text(json.dumps([run(command) for command in json.loads(commands.read_text())]))
