"""How a script ends: without delay, with one line that says why, and with no process left over."""

import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import psutil
import torch.distributed as dist

from shared.common import environment, writing
from shared.common.errors import UserError, missing

SHARED = Path(__file__).resolve().parents[1]
LOST = "another process of this training has ended"


def run(main):
    """Runs a script's main(), then ends the process and all those that main() has started.

    The exit code is 0 after success, 2 after a UserError, which is printed in one line on stderr, 1
    after any other error, 130 when the script is interrupted or terminated, and, without a word,
    141 when what reads its output has left, as with `| head`.

    In a stage on several devices, Fabric starts the script again for every further process. The
    first process, rank 0, is their parent, and reports for all of them.
    """
    rank = environment.rank()
    here = os.getpid()  # a DataLoader's workers are forks, and inherit the signal handlers set here
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    by_torchrun = f"stopped by torchrun, since {LOST} or torchrun was stopped itself"
    said = {
        signal.SIGINT: "interrupted",
        signal.SIGTERM: by_torchrun if torchrun else "interrupted",
    }

    def stop(number, _):
        _end(130, said[number] if rank == 0 and os.getpid() == here else None)

    for number in said:
        signal.signal(number, stop)
    _end_even_if_busy(130, {number: text if rank == 0 else None for number, text in said.items()})
    if rank == 0:
        signal.signal(signal.SIGUSR1, lambda *_: _end(2))  # from a child that has reported
    # A full disk that what is printed goes to must not end a training.
    sys.stdout, sys.stderr = writing.Patient(sys.stdout), writing.Patient(sys.stderr)
    try:
        environment.check() if _is_command() else environment.check_complete()
        try:
            main()
        except SystemExit:
            sys.stdout.flush()  # here, where it is noticed that nobody reads it
            raise
        sys.stdout.flush()
        if sys.stdout.failed:
            raise UserError(f"not all was printed: {sys.stdout.failed}")
    except writing.ReaderLeft:
        _end(141)
    except UserError as error:
        noticed = time.time()
        if rank != 0:
            # A mistake that all processes notice is reported by rank 0, which then ends the others.
            time.sleep(2)
        # An error in a DataLoader's worker comes with the worker's traceback, and the last line of
        # that is the message.
        text = str(error).strip().splitlines()[-1].split(f"{UserError.__name__}: ")[-1]
        _report(text, noticed)
        if environment.started_by_fabric():
            os.kill(os.getppid(), signal.SIGUSR1)
        _end(2)
    except Exception as error:
        noticed = time.time()
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        # This is how gloo says that a connection has broken.
        broken = re.search("(closed|reset) by peer", str(error))
        lost = several and isinstance(error, RuntimeError) and broken
        if rank != 0 or lost:
            # Most likely another process has failed first, and this error is a consequence. Then
            # torchrun or rank 0 ends this process before it prints anything.
            time.sleep(2)
        if lost:
            _report(f"{LOST} ({str(error).strip().splitlines()[-1]})")
        elif full := writing.unwritable(error):
            place = getattr(error, "filename", None) or "a file"
            _report(f"cannot write {place}: {full}; make room on that disk")
            _end(2)
        elif not several and isinstance(error, (dist.DistNetworkError, dist.DistStoreError)):
            _report(f"cannot meet the other processes: {str(error).strip().splitlines()[0]}")
            _end(2)
        else:
            traceback.print_exc()
            _tell_torchrun(f"{type(error).__name__}: {error}", noticed)
        _end(1)


def _end_even_if_busy(status, said):
    """Ends the process after a signal even if its main thread is blocked.

    Python handles signals in the main thread, when it executes Python code. But that thread may be
    waiting for a GPU, which waits for a process that no longer exists.

    Args:
        status: exit code.
        said: what to print, {number of the signal: text or None}.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    # A DataLoader's worker is a fork. A signal to it must not arrive here.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def wait():
        while (number := os.read(read, 1)[0]) not in said:
            pass
        time.sleep(1)  # if the main thread is not blocked, it ends the process meanwhile
        _end(status, said[number])

    threading.Thread(target=wait, daemon=True).start()


def _is_command():
    """Tells a command of this room, such as the ladder, from a script."""
    return SHARED in Path(sys.argv[0]).parents


def _report(text, noticed=None):
    script = Path(sys.argv[0])
    command = f"{script.parent.name}/{script.name}"
    if _is_command():
        parts = [SHARED.name, *script.relative_to(SHARED).with_suffix("").parts]
        command = f"python -m {'.'.join(part for part in parts if part != '__main__')}"
    _tell_torchrun(f"{command}: {text}", noticed or time.time())
    with contextlib.suppress(OSError):  # nobody reads it any more
        print(f"\n{command}: {text}", file=sys.stderr, flush=True)


def _explain(kind, error, trace):
    """Ends a script whose imports fail, before run() can: says in one line what to install."""
    ours = SHARED.parent in Path(sys.argv[0]).resolve().parents
    if ours and issubclass(kind, ModuleNotFoundError):
        _report(missing(error))
        os._exit(2)
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _explain


def _tell_torchrun(text, noticed):
    """Puts an error where torchrun finds it, so that its table, printed last, ends with it.

    torchrun shows the error that was noticed first.

    Source: https://docs.pytorch.org/docs/stable/elastic/errors.html
    """
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        told = {"py_callstack": text, "timestamp": str(int(noticed))}
        with contextlib.suppress(OSError):
            Path(file).write_text(json.dumps({"message": {"message": text, "extraInfo": told}}))


def _end(status, text=None):
    if text:
        _report(text)
    with contextlib.suppress(ValueError):  # only the main thread can set a handler
        # PyTorch's handler would report the workers that are killed here as an error.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)  # a regular exit would wait for processes that no longer respond
