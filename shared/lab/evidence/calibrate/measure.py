"""One run of runs.py in this process, a fork: its figures are appended to a file, as a line.

A line has the settings of the run, and its figures:
    record: the Meter's, of a script
    counters: of PyTorch's allocator at the end, in bytes; peaks unless they end in "_now"
    events: of the allocator, "a BYTES" (a block is handed out), "f BYTES" (it is given back),
        "S BYTES" and "R BYTES" (a segment is taken from CUDA, and given back), "M" and "U" (pages
        of an expandable segment are mapped and unmapped)
    update_ms, launch_ms: of each timed update, and until the host had started all of it
    profile: of an update: milliseconds in which the GPU was busy, the number of kernels, and
        {kernel: [count, microseconds]} of those that took longest
    steps: bytes outside of the allocator, after each first use
    said: PyTorch's message when memory ran out
"""

import contextlib
import fcntl
import json
import os
import signal
import tempfile
import time
import traceback

import torch

from emulated_gpu import launch
from emulated_gpu.why.fit import PLENTY_GB
from shared import metrics
from shared.lab.evidence.calibrate import fake_ranks, files, outside
from shared.lab.evidence.calibrate.runs import UPDATES
from shared.lab.records import scripts
from shared.memory import phases
from shared.memory.accounting.torch_private import wrapped
from shared.run.errors import UserError

# free_requested, as the moment of free_completed depends on other streams' speed.
LETTERS = {"alloc": "a", "free_requested": "f", "segment_alloc": "S", "segment_free": "R"}
LETTERS |= {"segment_map": "M", "segment_unmap": "U"}
LIMIT = 180  # seconds for a run; one that hangs must not use up a rented GPU
WARM_UP = 3  # updates that are not timed: CUDA loads kernels, and the allocator takes segments
TIMED = 10
SLOW = {"01_baseline/train": 4, "06_sgd/adam_on_host": 5}  # an update takes half a second, or one
PROFILED = 2
LONGEST = 60  # kernels of a profile that are kept


def measured(run, file):
    """Measure a run on the GPU of this process, and append a line to a file."""
    # The signal ends the process; nothing else would end a kernel that hangs.
    signal.alarm(LIMIT)
    try:
        if run.devices > 1:
            fake_ranks.begin(run.devices)
        _append_figures(run, file)
    except Exception:
        with file.with_suffix(".failed.txt").open("a") as log:
            log.write(f"{run}\n{traceback.format_exc()}\n")
        raise


def machine(file):
    """Append the line that describes the machine; the process that forks must not use the GPU."""
    append(file, files.machine())


def emulated(run, card, file):
    """Measure a run on an emulated card, with plenty of memory unless it shall run out."""
    from emulated_gpu import process  # it exists only where a GPU is emulated

    several = run.devices > 1
    gb = None if run.kind == "out of memory" else PLENTY_GB
    process.become(launch.settings(card, run.devices, alone=several, memory_gb=gb))
    torch.set_num_threads(1)
    _append_figures(run, file)


def _append_figures(run, file):
    """Run a script or a function, and append a line with its figures to a file."""
    # torch.compile() begins with an empty cache: a full one changes the peak by 0.3 %.
    with tempfile.TemporaryDirectory(prefix="calibrate-", ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        append(file, {**run.settings, **_figures(run)})


def append(file, fields):
    """Append a line of JSON to a file that other processes append to as well."""
    with file.open("a") as lines:
        # A line with events is written in several pieces, which must not mix.
        fcntl.flock(lines, fcntl.LOCK_EX)
        lines.write(json.dumps(fields) + "\n")


def _figures(run):
    """Return the figures of a run, by the names above."""
    if run.kind == "outside":
        return {"steps": getattr(outside, run.name)()}
    if run.expandable:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    memory = run.kind == "memory"
    if memory:
        torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
    figures = _script(run)
    torch.cuda.synchronize()
    figures["counters"] = _counters()
    if memory:
        figures["events"] = _events()
    return figures


def _script(run):
    """Run a script's own main(); return its figures."""
    script = scripts.get(run.name).load()
    for constant in ("BATCH_SIZE", "MICRO_BATCH_SIZE"):
        if size := getattr(run, constant.lower()):
            setattr(script, constant, size)
    options = ["--devices", "1"] if script.DEVICES > 1 and run.devices == 1 else []
    if run.kind == "tiny":
        return {"record": script.main(["--preset", "tiny", *options])}
    timed = SLOW.get(run.name, TIMED)
    updates = WARM_UP + timed + PROFILED if run.kind == "time" else UPDATES
    options += ["--preset", "full", "--dry-run", "--max-steps", str(updates)]
    with wrapped(phases.Phases, "load", _load_quickly):
        if run.kind == "time":
            return _timed(script, options, timed)
        if run.kind != "out of memory":
            return {"record": script.main(options)}
        try:
            script.main(options)
        except torch.OutOfMemoryError as error:
            return {"said": str(error)}
        raise UserError(f"{run}: there was memory enough")


@contextlib.contextmanager
def _load_quickly(original, meter_phases):
    """Zero weights on the host in place of random ones: a file is loaded into them anyway.

    The file itself has been made before: its weights are random.
    """

    def zero(function, tensor, *args, **kwargs):
        on_host = tensor.device.type == "cpu"
        return tensor.data.zero_() if on_host else function(tensor, *args, **kwargs)

    names = (name for name in dir(torch.nn.init) if name.endswith("_") and name[0] != "_")
    with contextlib.ExitStack() as stack:
        for name in names:
            if callable(getattr(torch.nn.init, name)):
                stack.enter_context(wrapped(torch.nn.init, name, zero))
        yield stack.enter_context(original(meter_phases))


def _timed(script, options, timed):
    """Run a script without the ledger; return its record, the times and a profile of updates."""
    # The ledger would take time on the host at each operation.
    metrics.LEDGER_UPDATES = phases.LEDGER_UPDATES = 0
    figures = {"update_ms": [], "launch_ms": []}
    profile = contextlib.ExitStack()

    # In place of the Meter's own, which every script calls for its batches.
    def progress(original, meter, loader, epoch):
        torch.cuda.synchronize()
        for number, batch in enumerate(original(meter, loader, epoch), start=1):
            # After all timed updates, since a profiler slows down what it watches.
            if number == WARM_UP + timed + 1 and not launch.is_emulated():
                cuda = [torch.profiler.ProfilerActivity.CUDA]
                profile.profiler = profile.enter_context(torch.profiler.profile(activities=cuda))
            started = time.perf_counter()
            yield batch
            launched = time.perf_counter()
            torch.cuda.synchronize()
            if WARM_UP < number <= WARM_UP + timed:
                figures["launch_ms"].append(round((launched - started) * 1e3, 3))
                figures["update_ms"].append(round((time.perf_counter() - started) * 1e3, 3))
        profile.close()

    with wrapped(metrics.Meter, "progress", progress):
        figures["record"] = script.main(options)
    if hasattr(profile, "profiler"):
        figures["profile"] = _busy(profile.profiler.events(), PROFILED)
    return figures


def _busy(events, updates):
    """Return the busy time of the GPU, the kernels, and the longest of them, of one update."""
    on_gpu = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels = {}
    busy = 0.0
    until = 0.0
    for event in sorted(on_gpu, key=lambda e: e.time_range.start):
        start = event.time_range.start  # microseconds
        end = event.time_range.end
        # Kernels of several streams overlap; a moment counts once.
        busy += max(end - max(start, until), 0)
        until = max(until, end)
        # Names of kernels from templates may have thousands of characters.
        row = kernels.setdefault(event.name[:140], [0, 0.0])
        row[0] += 1 / updates
        row[1] = round(row[1] + (end - start) / updates, 2)
    longest = sorted(kernels, key=lambda name: -kernels[name][1])[:LONGEST]
    return {
        "busy_ms": round(busy / updates / 1e3, 3),
        "kernels": sum(count for count, _ in kernels.values()),
        "longest": {name: kernels[name] for name in longest},
    }


def _counters():
    """Return peaks of PyTorch's allocator in bytes, with its retries and segments."""
    stats = torch.cuda.memory_stats()
    names = {"allocated": "allocated_bytes", "active": "active_bytes", "reserved": "reserved_bytes"}
    peaks = {name: stats[f"{key}.all.peak"] for name, key in names.items()}
    return {**peaks, "retries": stats["num_alloc_retries"], "segments": stats["segment.all.peak"]}


def _events():
    """Return the allocator's history as lines of a letter and bytes."""
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    return "\n".join(
        f"{LETTERS[e['action']]} {e['size']}" for e in events if e["action"] in LETTERS
    )
