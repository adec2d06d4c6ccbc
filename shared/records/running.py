"""Runs a script in a process of its own, for its record."""

import contextlib
import multiprocessing
import multiprocessing.connection
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

import torch

from shared.common.ending import LOST
from shared.common.writing import saying
from shared.records import scripts
from shared.records.record import read


def forks(preload):
    """Returns the multiprocessing context whose processes are forks of one with all imports.

    Args:
        preload: names of modules to import in it; they take seconds, and a fork has them at once.
            The first call decides.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload)
    if threading.current_thread() is threading.main_thread():  # only it can set a handler
        # Only this process must react to Ctrl-C: it ends the others.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        multiprocessing.forkserver.ensure_running()
        signal.signal(signal.SIGINT, interrupt)
    return context


def run_script(name, options, log, processes=None, context=None):
    """Runs a script and shows its last line of output while it runs, on one line.

    Args:
        name: of the script, such as "06_sgd/train".
        options: its command line.
        log: file for what it prints.
        processes: how many torchrun starts; None to run the script alone.
        context: forks(), to start the processes in, several with what torchrun would put into
            their environment: without a GPU that is as good, and much quicker; None to start them
            as a user does.

    Returns:
        its record, or None, and its last line of output; if it failed, the last one of its own.
    """
    record_file = log.with_suffix(".jsonl")
    record_file.unlink(missing_ok=True)
    options = [*options, "--record", str(record_file)]
    with saying(log):
        log.write_text("")
    arguments = (scripts.get(name).path, options, log, processes)
    running = Forked(context, *arguments) if context else Started(*arguments)
    started = time.perf_counter()
    try:
        while (code := running.wait(0.2)) is None:
            _live(f"{name:24} {time.perf_counter() - started:3.0f} s  {_last_line(log)}")
    finally:
        running.end()
        _live("")
    last = _last_line(log)
    records, _ = read(record_file)
    record_file.unlink(missing_ok=True)
    if code == 0 and records:
        return records[-1], last
    if code < 0:
        return None, f"killed by signal {-code}"
    lines = log.read_text(errors="replace").splitlines()
    said = [line for line in lines if line.startswith(f"{name}.py: ")]
    # After it torchrun prints a lot; and that another process has ended is no cause.
    causes = [line for line in said if LOST not in line]
    return None, (causes or said or [last])[-1]


class Started:
    """A script as a user starts it, alone or with torchrun."""

    def __init__(self, path, options, log, processes):
        module = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        command = [sys.executable, *(module if processes else []), str(path), *options]
        with log.open("ab") as out:
            # In a session of its own, so that all its processes can be ended together.
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self, seconds):
        """Waits so long at most; returns the exit code, None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds)
        return None

    def end(self):
        """Ends what still runs of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Forked:
    """A script in forks; the first one speaks for all."""

    def __init__(self, context, path, options, log, processes):
        n = processes or 1
        with socket.create_server(("localhost", 0)) as free:
            port = free.getsockname()[1]
        same = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "-"}
        same |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        self.processes = []
        for rank in range(n):
            ranks = {"RANK": rank, "LOCAL_RANK": rank, **same} if processes else {}
            environment = {key: str(value) for key, value in ranks.items()}
            arguments = (str(path), options, str(log), environment)
            self.processes.append(context.Process(target=become, args=arguments))
            self.processes[-1].start()

    def wait(self, seconds):
        """Waits so long at most; returns the exit code, None if it still runs."""
        codes = [process.exitcode for process in self.processes]
        if all(code is None or code == 0 for code in codes) and None in codes:
            running = [process.sentinel for process in self.processes if process.exitcode is None]
            multiprocessing.connection.wait(running, seconds)
            return None
        if None in codes:  # one has failed: the others notice, and the first one reports for all
            for process in self.processes:
                process.join(5)
        return next((code for code in codes if code), 0)

    def end(self):
        """Ends what still runs of it."""
        for process in self.processes:
            process.kill()  # first it alone: until it has a session of its own, there is no group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()


def become(path, options, log, environment):
    """Turns this process, a fork, into a script as it is when Python starts with it.

    Args:
        path: of the script.
        options: its command line.
        log: file that gets what it prints.
        environment: variables to set.
    """
    os.setsid()  # so that it can be ended together with its loaders' workers
    out = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (sys.stdout, sys.stderr):
        os.dup2(out, standard.fileno())
    os.environ.update(environment)
    threads = torch.get_num_threads()
    if "WORLD_SIZE" in environment and "OMP_NUM_THREADS" not in os.environ:  # as Fabric does
        threads = max(1, os.cpu_count() // int(environment["WORLD_SIZE"]))
    # A fork gets a new pool of threads at its first use, which must not be by two threads at once.
    torch.set_num_threads(threads)
    # A fork inherits how it was started itself. Loaders would start their workers in the same way,
    # and these would import PyTorch anew.
    multiprocessing.set_start_method(None, force=True)
    sys.argv, sys.path = [path, *options], [str(Path(path).parent), *sys.path]
    runpy.run_path(path, run_name="__main__")


def _last_line(log):
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4000))
        text = file.read().decode(errors="replace")
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    return lines[-1].strip() if lines else "starting"


def _live(text):
    if sys.stdout.isatty():
        width = os.get_terminal_size().columns - 1
        print(f"\r{text[:width]:{width}}", end="\r", flush=True)
