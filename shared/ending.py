"""How a script ends: in time, with one line that says why, and with nothing left behind."""

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

from shared import UserError

LOST = "another process of this training has ended"


def run(main):
    """Runs a script's main() and ends the process: with exit code 0, with 2 and one line on stderr after a UserError,
    with 130 when interrupted or terminated. Processes that main() has started do not outlive it.

    In a stage on several devices, Fabric starts the script again for every further process; the first one, rank 0, is
    their parent, and speaks for all.
    """
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))
    here = os.getpid()  # the workers of a DataLoader are forks, and inherit what is set here
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    said = {signal.SIGINT: "interrupted", signal.SIGTERM: f"stopped by torchrun, since {LOST} or torchrun was stopped itself" if torchrun else "interrupted"}
    for number in said:
        signal.signal(number, lambda number, _: _end(130, said[number] if rank == 0 and os.getpid() == here else None))
    _end_even_if_busy(130, {number: text if rank == 0 else None for number, text in said.items()})
    if rank == 0:
        signal.signal(signal.SIGUSR1, lambda *_: _end(2))  # from a child, which has said why
    try:
        main()
    except UserError as error:
        if rank != 0:
            time.sleep(2)  # a mistake that all processes notice is reported by rank 0, which then ends the others
        # An error in a DataLoader's worker arrives with the worker's traceback, which ends in the line wanted.
        text = str(error).strip().splitlines()[-1].split(f"{UserError.__name__}: ")[-1]
        _report(text)
        if rank != 0 and not torchrun:
            os.kill(os.getppid(), signal.SIGUSR1)
        _end(2)
    except Exception as error:
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        lost = several and isinstance(error, RuntimeError) and re.search("(closed|reset) by peer", str(error))  # gloo's words
        if rank != 0 or lost:
            time.sleep(2)  # most likely the echo of another process' end: torchrun or rank 0 ends this one now
        _report(f"{LOST} ({str(error).strip().splitlines()[-1]})") if lost else traceback.print_exc()
        _end(1)


def _end_even_if_busy(status, said):
    """Ends the process after a signal even if its main thread does not come back to Python, where signals are handled: it may
    be waiting for a GPU, which waits for a process that is not there any more.

    Args:
        status: exit code.
        said: what to print, {number of the signal: text or None}.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # what is told to a DataLoader's worker is for it

    def wait():
        while (number := os.read(read, 1)[0]) not in said:
            pass
        time.sleep(1)  # the main thread is first
        _end(status, said[number])

    threading.Thread(target=wait, daemon=True).start()


def _report(text):
    script = Path(sys.argv[0])
    print(f"\n{script.parent.name}/{script.name}: {text}", file=sys.stderr, flush=True)


def _end(status, text=None):
    if text:
        _report(text)
    with contextlib.suppress(ValueError):  # the main thread alone can
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch's handler would complain of the workers that are ended here
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a regular exit would wait for processes that do not answer any more
