"""Functions in forks of a process that has imported everything, and this process's server."""

import atexit
import contextlib
import gc
import importlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from multiprocessing import connection

from tqdm import tqdm

from emulated_gpu import launch
from shared.lab.records.running import PRELOADED, end_with_parent
from shared.run.errors import UserError
from shared.run.record import ROOT

IMPORTED = [*PRELOADED, "shared.lab.predict.stage", "shared.lab.predict.card_fit"]


class Forks:
    """A server that has imported everything: each job runs in a fork of it.

    Imports take seconds, so it lives until the program exits.
    """

    def __init__(self, variables):
        """Start the server, with the environment that its imports see."""
        self._end, server_end = multiprocessing.Pipe()
        descriptor = server_end.fileno()
        command = [sys.executable, "-m", __name__, str(descriptor)]
        passed = {"cwd": ROOT, "pass_fds": [descriptor], "stdin": subprocess.DEVNULL}
        self._process = launch.start(command, variables, **passed)
        # With this end open, recv() would wait, and not fail, when the server has died.
        server_end.close()
        atexit.register(self.end)

    def run(self, variables, jobs, workers):
        """Return the results of jobs.

        Args:
            variables: the environment of the jobs.
            jobs: [(function, *arguments), ...].
            workers: the number of processes side by side.

        Raises:
            UserError: the server is gone.
        """
        try:
            self._end.send((variables, sys.path, pickle.dumps(jobs), workers))
            return pickle.loads(self._end.recv())
        except (EOFError, OSError):
            raise UserError("the runs were ended; has the host enough memory?") from None

    def is_alive(self):
        """Return whether the server is running."""
        return self._process.poll() is None

    def end(self):
        """End the process, with all forks."""
        atexit.unregister(self.end)
        with contextlib.suppress(ProcessLookupError):  # it has ended itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def run_all(jobs, workers):
    """Return the results of jobs in order; the result of a failed job is its exception."""
    # By name, since from Python 3.14 on the default starts processes that import everything anew:
    # https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
    context = multiprocessing.get_context("fork")
    waiting = list(enumerate(jobs))
    running = {}  # {end of a pipe: (number of the job, process)}
    results = [None] * len(jobs)
    bar = tqdm(total=len(jobs), unit="script", leave=False, disable=None)  # on a terminal
    while waiting or running:
        while waiting and len(running) < workers:
            number, job = waiting.pop(0)
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(sender, job))
            process.start()
            # While any process has this end open, recv() waits, even if the child is dead.
            sender.close()
            running[receiver] = number, process
        for receiver in connection.wait([*running]):
            number, process = running.pop(receiver)
            try:
                results[number] = receiver.recv()
            except EOFError:  # it was killed before it could send anything
                process.join()
                results[number] = _ended(process.exitcode, jobs[number])
            process.join()
            bar.update()
    bar.close()
    return results


def _run(sender, job):
    """Run a job, and send its result or its error; its output is not shown."""
    end_with_parent()
    function, *arguments = job
    with tempfile.TemporaryFile() as log:
        # The descriptors, since libraries in C and child processes print past sys.stdout.
        for standard in (1, 2):
            os.dup2(log.fileno(), standard)
        try:
            result = function(*arguments)
        except UserError as error:
            result = error
        except Exception as error:
            first_line = str(error).strip().partition("\n")[0][:300]
            result = UserError(f"{_name(job)} failed: {type(error).__name__}: {first_line}")
    sender.send(result)


def _name(job):
    """Return the name of a job for messages: its script, and the model of its options, if any."""
    _, script, *further = job
    name = getattr(script, "name", script)
    model = getattr(further[0], "model", None) if further else None
    return f"{name} with {model}" if model else str(name)


def _ended(code, job):
    """Return the error of a job whose process has ended with a code, or by a signal."""
    if code >= 0:
        return UserError(f"{_name(job)} was ended by exit code {code}")
    # The kernel kills a process with SIGKILL when memory runs out.
    hint = "; has the host enough memory?" if -code == signal.SIGKILL else ""
    return UserError(f"{_name(job)} was ended by {signal.Signals(-code).name}{hint}")


def serve(end):
    """Run the jobs that come through a multiprocessing.Connection, until it is closed."""
    last = {}
    while True:
        try:
            variables, folders, jobs, workers = end.recv()
        except EOFError:
            return
        # Only variables of an earlier call are removed: packages set others when imported.
        for name in last.keys() - variables:
            os.environ.pop(name, None)
        os.environ.update(variables)
        last = variables
        # Jobs come as bytes in a message: their modules may be importable only from here on.
        sys.path += [folder for folder in folders if folder not in sys.path]
        end.send(pickle.dumps(run_all(pickle.loads(jobs), workers)))


if __name__ == "__main__":
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # otherwise every fork would search all imported objects for garbage, many times
    gc.enable()
    descriptor = int(sys.argv[1])
    sys.argv = ["predict"]  # errors of the command line begin with it
    serve(connection.Connection(descriptor))
