"""Inside a process with an emulated GPU: the emulator's interface for a predictor.

The process was started with the variables of launch.environment(), or is a fork of one that was.
Anywhere else, importing this module raises ImportError. The modules of `inside` are not public.
"""

import contextlib
import ctypes
import os

from emulated_gpu.inside import (
    alone,
    dynamo,
    host,
    kernels,
    library,
    memory,
    report,
    streams,
    work,
)

PEAKS = tuple(report.COUNTERS)  # "allocated", "active", "reserved"
on_gpu = memory.on_gpu
address = memory.start
restart_peaks = report.restart
count_changes = report.count_changes
records_history = report.records_history
allocation_failures = report.failures
kept_by = streams.kept_by
work_count = library.work_count  # until now; the log of log_work() has them all by then
leave_out_of_compile = dynamo.leave_out
write_safetensors = host.write_safetensors


def become(variables):
    """Give this process another emulated card, before its first use of CUDA.

    It makes many short runs cheap: a process imports PyTorch once, and each run is a fork of it.

    Args:
        variables: of launch.settings().
    """
    # Not a copy of the environment: read_settings(), in C, reads what this one sets.
    os.environ.update(variables)
    library.read_settings()
    # When PyTorch was imported, the variables were those of another card.
    work.read_rates()
    if os.environ["EMULATED_ALONE"] == "1":
        alone.begin()


@contextlib.contextmanager
def watching(watcher):
    """Report every operation on the GPU, and copies on the host, to a watcher in this context.

    Only the watcher of the innermost context gets reports. None come before PyTorch 2.9.

    Args:
        watcher: an object with begins(func), which returns anything, and with
            ends(begun, func, args, kwargs, out), which gets that back. `func` is a
            torch._ops.OpOverload; `out` is None where it raised an error.
    """
    kernels.watchers.append(watcher)
    try:
        yield
    finally:
        kernels.watchers.remove(watcher)


def times():
    """Return the duration of all work that was given to the GPU so far, in virtual time.

    {"ms": until all of it has ended, with the host's pace; "busy_ms": for how long of that any
    stream is at work; "pieces": of work that the host has started}.
    """
    figures = (ctypes.c_int64 * 3)()
    library.times(figures)
    end, busy, pieces = figures
    return {"ms": end / 1e6, "busy_ms": busy / 1e6, "pieces": pieces}


def passed(before, after):
    """Return the difference between two results of times(), with the same keys."""
    # Of times that began anywhere, the same difference: to whole ns.
    return {key: round(after[key] - before[key], 6) for key in after}


def log_work(file):
    """Log the work that is given to the GPU from here on.

    Args:
        file: to be written, a line for each piece of work: its kind ("product", "kernel", "copy_in"
            to the GPU, "copy_out", "send", "graph"), the stream's address, its beginning and its
            end in ns of virtual time.
    """
    library.log_work(os.fsencode(file))
