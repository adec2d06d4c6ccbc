"""Run a script in processes of its own, and return its record.

PyTorch is imported inside of functions: forks() begins to import it in another process, before the
caller does the same, which takes both as long as one.
"""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from shared.lab.records.reading import read
from shared.run.record import ROOT

# Modules that every script imports.
PRELOADED = ["shared.metrics", "shared.images.cli", "shared.text.cli", "lightning.fabric"]


def forks():
    """Return a multiprocessing context that forks processes from one with all imports done.

    The first call starts the server and imports PRELOADED, which takes seconds; later processes
    are forked from it and start at once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    if threading.current_thread() is threading.main_thread():  # others cannot set a handler
        # Threads of OpenMP that wait for each other keep their cores busy, unless this is set when
        # PyTorch is imported. Where other programs run, too, a stage then takes many times as long.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # Only this process must react to Ctrl-C: it ends the others.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        multiprocessing.forkserver.ensure_running()
        signal.signal(signal.SIGINT, interrupt)
    return context


def run_script(name, options, log, processes=None, context=None):
    """Run a script with options, and show its last line of output while it runs, on one line.

    `name` is "06_sgd/train", or a path without ".py". `processes` is the number of processes, with
    the environment that torchrun would set; None runs the script alone. `context` is forks(),
    without a GPU; None imports everything anew. Return the record, or None, and the last line of
    output; if the script failed, the line that says why.
    """
    # A record that an earlier run has left would be taken for that of this one.
    record_file = log.with_suffix(".jsonl")
    record_file.unlink(missing_ok=True)
    log.write_text("")
    command = [str(ROOT / f"{name}.py"), *options, "--record", str(record_file)]
    context = context or multiprocessing.get_context("spawn")
    process = context.Process(target=become, args=(command, str(log), processes))
    started = time.perf_counter()
    process.start()
    try:
        while process.exitcode is None:
            # Often enough for a live line on a terminal.
            process.join(0.2)
            _live(f"{name:24} {time.perf_counter() - started:3.0f} s  {_last_line(log)}")
    finally:
        end(process)
        _live("")
    records, _ = read(record_file)
    record_file.unlink(missing_ok=True)
    if process.exitcode == 0 and records:
        return records[-1], _last_line(log)
    # A process that was killed, as for want of memory, could not say why.
    if process.exitcode < 0:
        return None, f"killed by signal {-process.exitcode}"
    lines = log.read_text(errors="replace").splitlines()
    # A script's own error begins with its name; the last line may be a worker's.
    by_script = re.compile(rf"(\S+/)?{re.escape(Path(command[0]).name)}: ")
    errors = [line for line in lines if by_script.match(line)]
    return None, errors[0] if errors else _last_line(log)


def become(command, log, processes=None):
    """Run `python COMMAND` in this process, or in several forks of it; print into a file."""
    import torch
    from torch.multiprocessing import ProcessExitedException

    os.setsid()  # so that it can be killed together with its DataLoader workers
    end_with_parent(os.killpg)
    out = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (sys.stdout, sys.stderr):
        os.dup2(out, standard.fileno())
    # A process inherits its own start method. DataLoaders would start their workers in the same
    # way, and these would import PyTorch anew.
    multiprocessing.set_start_method(None, force=True)
    if processes:
        try:
            side_by_side(processes, run_python, command)
        except ProcessExitedException as error:  # the process has reported the reason
            sys.exit(error.exit_code)
    else:
        torch.set_num_threads(torch.get_num_threads())  # for the reason in _call()
        run_python(command)


def end(process):
    """Kill a process that runs become(), and all that it has started, even if it has ended itself.

    A DataLoader worker, too, ends when its parent is gone, but only if that was still there when
    the worker began to watch it.
    """
    process.kill()  # the process first: before its setsid() there is no group to kill
    process.join()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end_with_parent(kill=os.kill):
    """Kill this process, or its group, as soon as its parent is gone, even if that was killed."""

    def wait():
        multiprocessing.parent_process().join()
        kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def run_python(command):
    """Run `python COMMAND` in this process: a script, or "-m" and a module, with options."""
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path = [str(Path(command[0]).resolve().parent), *sys.path]  # as Python does
            runpy.run_path(command[0], run_name="__main__")
    except Exception:
        # shared.run.errors replaces it, and multiprocessing would never call it.
        sys.excepthook(*sys.exc_info())
        sys.exit(1)


def side_by_side(n, function, *arguments):
    """Call a function in n forks, with the environment that torchrun would set.

    When one of them fails, end the others.
    """
    from torch.multiprocessing import start_processes

    with socket.create_server(("127.0.0.1", 0)) as free:
        # Free when asked for; rank 0 takes it a moment later.
        port = free.getsockname()[1]
    start_processes(_call, (n, port, function, arguments), nprocs=n, start_method="fork")


def _call(rank, n, port, function, arguments):
    import torch

    become_rank(rank, n, port)
    # A fork creates its thread pool at the first use, which must not be by two threads at once.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", max(1, os.cpu_count() // n))))
    function(*arguments)


def become_rank(rank, n, port=29500):
    """Give this process the environment that torchrun would set for a rank of n."""
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
    variables |= {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    variables |= {"TORCHELASTIC_RUN_ID": "-"}  # by which Fabric knows the processes of torchrun
    os.environ.update({name: str(value) for name, value in variables.items()})


def git(*words):
    """Run git in the repository's folder; return a subprocess.CompletedProcess."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def _last_line(log):
    # Only the end, as progress bars fill logs; they return to the line's start with \r.
    lines = re.split(r"[\r\n]+", log.read_bytes()[-4000:].decode(errors="replace"))
    return next((line.strip() for line in reversed(lines) if line.strip()), "starting")


def _live(text):
    if sys.stdout.isatty():
        # Some terminals begin a new line once the last column is used.
        width = os.get_terminal_size().columns - 1
        print(f"\r{text[:width]:{width}}", end="\r", flush=True)
