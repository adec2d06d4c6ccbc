"""How a script ends: without delay, with one line that says why, and with no process left over."""

import contextlib
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

from shared.common.errors import UserError

SHARED = Path(__file__).resolve().parents[1]
LOST = "another process of this training has ended"


def run(main):
    """Runs a script's main(), then ends the process and all those that main() has started.

    The exit code is 0 after success, 2 after a UserError, which is printed in one line on stderr, 1
    after any other error, and 130 when the script is interrupted or terminated.

    In a stage on several devices, Fabric starts the script again for every further process. The
    first process, rank 0, is their parent, and reports for all of them.
    """
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))
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
    try:
        main()
    except UserError as error:
        if rank != 0:
            # A mistake that all processes notice is reported by rank 0, which then ends the others.
            time.sleep(2)
        # An error in a DataLoader's worker comes with the worker's traceback, and the last line of
        # that is the message.
        text = str(error).strip().splitlines()[-1].split(f"{UserError.__name__}: ")[-1]
        _report(text)
        if rank != 0 and not torchrun:
            os.kill(os.getppid(), signal.SIGUSR1)
        _end(2)
    except Exception as error:
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
        else:
            traceback.print_exc()
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


def _report(text):
    script = Path(sys.argv[0])
    command = f"{script.parent.name}/{script.name}"
    if SHARED in script.parents:
        parts = [SHARED.name, *script.relative_to(SHARED).with_suffix("").parts]
        command = f"python -m {'.'.join(part for part in parts if part != '__main__')}"
    print(f"\n{command}: {text}", file=sys.stderr, flush=True)


def _end(status, text=None):
    if text:
        _report(text)
    with contextlib.suppress(ValueError):  # only the main thread can set a handler
        # PyTorch's handler would report the workers that are killed here as an error.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a regular exit would wait for processes that no longer respond
