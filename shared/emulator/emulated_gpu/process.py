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
    reads,
    report,
    streams,
    work,
)

PEAKS = tuple(report.COUNTERS)  # "allocated", "active", "reserved"


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


def on_gpu(tensor):
    """Return whether the memory of a tensor is on an emulated GPU; sparse tensors have none."""
    return memory.on_gpu(tensor)


def address(tensor):
    """Return the address at which the memory that a tensor is a view of begins.

    The allocator's history names blocks by it. It is not data_ptr() where a view begins later, and
    unlike untyped_storage().data_ptr() it makes no Python object of the storage, which would change
    how autograd adds gradients up, and with it the memory.
    """
    return memory.start(tensor)


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


def restart_peaks():
    """Return the peaks of the current GPU since the last call, {name of PEAKS: bytes}; start anew.

    The program's own peaks, such as torch.cuda.max_memory_allocated(), do not change by that.
    """
    return report.restart()


def records_history():
    """Return whether the allocator keeps its history already, for a snapshot at the end."""
    return report.records_history()


def work_count():
    """Return the number of pieces of work that were given to the GPU so far.

    The log of log_work() has them all by then.
    """
    return library.work_count()


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
        file: to be written, a line for each piece of work: its kind ("product", "kernel", "copy",
            "send", "graph"), the stream's address, its beginning and its end in ns of virtual time.
    """
    library.log_work(os.fsencode(file))


def kept_by():
    """Return the reasons why memory here depends on the host's pace, [] if it does not.

    Lines, "file:line", that recorded a stream on a tensor whose memory the allocator has then kept
    for that stream; or in words, where PyTorch did that itself.
    """
    return streams.kept_by()


def allocation_failures():
    """Return {"retries": how often PyTorch gave its cache back, "errors": failed allocations}."""
    return report.failures()


def leave_out_of_lines(folder):
    """Exclude the files of a folder from the lines that the report names.

    Such code runs the program; a value that it reads is reported for a line of the program.
    """
    reads.NOT_THE_PROGRAM.append(str(folder))


def leave_out_of_compile(module):
    """Keep torch.compile() from tracing functions of a module, such as those of a watcher."""
    dynamo.leave_out(module)


def write_safetensors(file, tensors, dtype):
    """Write a file of weights without values, which takes no room on the disk.

    https://huggingface.co/docs/safetensors/index#format

    Args:
        tensors: {name: tensor}; those on the meta device are enough.
        dtype: of the floating-point ones in the file.
    """
    host.write_safetensors(file, tensors, dtype)
