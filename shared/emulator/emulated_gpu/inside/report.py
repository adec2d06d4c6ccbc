"""The report of a process: PyTorch's own counts, and the lines and results that are assumptions."""

import atexit
import bisect
import ctypes
import json
import os
import pickle
import types

import torch

from emulated_gpu.inside import kernels, library, reads, streams, tracing, work
from emulated_gpu.inside.memory import start
from emulated_gpu.stand_ins import notes

# The counters of PyTorch's allocator that are reported, by their names in the report.
COUNTERS = {"allocated": "allocated_bytes", "active": "active_bytes", "reserved": "reserved_bytes"}
# PyTorch's counts of allocations for which memory was too small, by their names in the report.
FAILURES = {"retries": "num_alloc_retries", "errors": "num_ooms"}
EVENTS = 10_000_000  # of the allocator's history at most: a bound that no run has reached
NAMES_BYTES = 1 << 20  # for the names of the functions that were called

# The script and the emulator share PyTorch's peaks, and either may reset them. So the peaks from
# before a reset by the script are kept for the report, and those from before a reset by restart()
# for the script.
_peaks = {}  # device -> {name of COUNTERS: bytes}, over all that the script has reset
_unseen_peaks = {}  # device -> {counter: bytes}, that restart() has reset, and not the script
_failures = dict.fromkeys(FAILURES, 0)  # of all devices, those that the script has reset
_memory_stats = torch._C._cuda_memoryStats
_types = {}  # (device, allocations on it so far, address) -> type of what an operation returned
_reporter = None  # id of the process that has written its report; a fork writes its own


def begin():
    """Write a report at the end of this process, and a snapshot if one is wanted."""
    library.set_counted()
    tracing.begin()
    # Functions of atexit run in reverse order: all work ends, then the report is written.
    atexit.register(write)
    atexit.register(library.end)
    os._exit = _after(lambda *_: write(), os._exit)  # some programs end like this
    torch._C._cuda_memoryStats = _stats_for_the_script
    for kind, first in (("Peak", _before_reset), ("Accumulated", _keep_counts)):
        for name in (f"_cuda_reset{kind}MemoryStats", f"_accelerator_reset{kind}Stats"):
            if hasattr(torch._C, name):
                setattr(torch._C, name, _after(first, getattr(torch._C, name)))
    if records_history():
        torch.cuda.memory._record_memory_history(max_entries=EVENTS, stacks="python")
        kernels.watchers.append(types.SimpleNamespace(begins=lambda func: None, ends=_note_types))


def count_changes():
    """Return the number of allocations and frees on the current device so far."""
    if not torch.cuda.is_initialized():
        return 0
    counts = _memory_stats(torch.cuda.current_device())["allocation"]["all"]
    return counts["allocated"] + counts["freed"]


def records_history():
    """Return whether the allocator keeps its history, for a snapshot at the end."""
    return bool(os.environ.get("EMULATED_SNAPSHOT"))


def _note_types(_, func, args, kwargs, out):
    """Note the types of the tensors that an operation has made, and from what it cast them."""
    copies = func._schema.name == "aten::copy_"
    if func._schema.name.endswith("_") and not copies:
        return  # it makes none
    for t in work.plain_tensors(out):
        count = _memory_stats(t.device.index)["allocation"]["all"]["allocated"]
        key, name = (t.device.index, count, start(t)), str(t.dtype).removeprefix("torch.")
        if not copies:
            _types.setdefault(key, name)
        elif key in _types and args[1].dtype != t.dtype:  # nothing else was allocated since
            _types[key] = f"{name} cast from {args[1].dtype}".replace("torch.", "")


def _snapshot():
    """Return PyTorch's snapshot, in which events have also the type of what they allocate."""
    snapshot = torch.cuda.memory._snapshot()
    for device, trace in enumerate(snapshot["device_traces"]):
        made = [event for event in trace if event["action"] == "alloc"]
        places = {}  # address -> numbers of the allocations there, in order
        # The script may have begun the history anew.
        first = 1 + _memory_stats(device)["allocation"]["all"]["allocated"] - len(made)
        for number, event in enumerate(made, first):
            places.setdefault(event["addr"], []).append(number)
        for (where, count, address), name in _types.items():
            numbers = places.get(address, ()) if where == device else ()
            if last := bisect.bisect(numbers, count):
                made[numbers[last - 1] - first].setdefault("type", name)
    return snapshot


def _after(first, original):
    """Return a function that calls `first`, then the original, with the same arguments."""

    def replacement(*args):
        first(*args)
        return original(*args)

    return replacement


def _stats_for_the_script(device):
    """Return PyTorch's counters, with the peaks that they would have without restart()."""
    stats = _memory_stats(device)
    for counter, peak in _unseen_peaks.get(device, {}).items():
        stats[counter]["all"]["peak"] = max(stats[counter]["all"]["peak"], peak)
    return stats


def _before_reset(device=0):
    """Keep the peaks of a device, before the script resets them."""
    keep(device)
    _unseen_peaks.pop(device, None)


def _keep_counts(device=0):
    """Keep the counts of failures of a device, before the script resets them with all counts."""
    _types.clear()  # they are found by a count, too
    stats = _memory_stats(device)
    for name, counter in FAILURES.items():
        _failures[name] += stats[counter]


def failures():
    """Return the number of allocations that found no room, on all devices, by name in FAILURES."""
    stats = [_memory_stats(device) for device in range(torch.cuda.device_count())]
    return {name: _failures[name] + sum(s[key] for s in stats) for name, key in FAILURES.items()}


def keep(device=0):
    """Keep the peaks of a device, in bytes, before the script resets them, or ends."""
    stats = _memory_stats(device)
    kept = _peaks.setdefault(device, dict.fromkeys(COUNTERS, 0))
    for name, counter in COUNTERS.items():
        kept[name] = max(kept[name], stats[counter]["all"]["peak"])


def peaks():
    """Return the peaks of the devices in use, {device: {"allocated", "active", "reserved"}}."""
    for device in range(torch.cuda.device_count()):
        keep(device)
    return {device: kept for device, kept in _peaks.items() if kept["reserved"]}


def restart():
    """Return the peaks of the current device in bytes since the last call, and begin anew.

    The program's own peaks, such as torch.cuda.max_memory_allocated(), do not change by that.
    """
    device = torch.cuda.current_device()
    keep(device)
    kept = _peaks.pop(device)
    stats = _stats_for_the_script(device)
    torch.cuda.reset_peak_memory_stats(device)  # which keeps them once more, in _before_reset()
    del _peaks[device]
    _unseen_peaks[device] = {name: stats[name]["all"]["peak"] for name in COUNTERS.values()}
    return kept


def called():
    """Return the names of called functions that the emulator knows by name only."""
    buffer = ctypes.create_string_buffer(NAMES_BYTES)
    library.names_called(buffer, len(buffer))
    return buffer.value.decode().splitlines()


def write():
    """Write the report of this process, once, if it has used a GPU."""
    global _reporter
    if _reporter == os.getpid() or not torch.cuda.is_initialized():
        return
    _reporter = os.getpid()
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))
    if file := os.environ.get("EMULATED_SNAPSHOT"):
        with open(f"{file}.rank{rank}" if rank else file, "wb") as out:
            pickle.dump(_snapshot(), out)
    tracing.write(rank)
    folder = os.environ.get("EMULATED_REPORTS")
    if not folder or not peaks():
        return
    report = {"rank": rank, "peaks": peaks(), "lines": reads.lines, "called": called()}
    report |= {"kept": streams.kept_by(), "groups": library.communicators(), **failures()}
    report["stand_ins"] = notes.made
    path = os.path.join(folder, f"{os.getpid()}.json")
    # The launcher reads all *.json at the end, also of processes that it has killed meanwhile.
    with open(f"{path}.part", "w") as part:
        json.dump(report, part)
    os.replace(f"{path}.part", path)
