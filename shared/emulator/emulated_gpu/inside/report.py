"""The report of a process: PyTorch's own counts, and the lines and results that are assumptions."""

import atexit
import ctypes
import json
import os

import torch

from emulated_gpu.inside import library, reads, streams

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
_reporter = None  # id of the process that has written its report; a fork writes its own


def begin():
    """Write a report at the end of this process, and a snapshot if one is wanted."""
    library.set_counted()
    # Functions of atexit run in reverse order: all work ends, then the report is written.
    atexit.register(write)
    atexit.register(library.end)
    os._exit = _after(lambda *_: write(), os._exit)  # some programs end like this
    torch._C._cuda_memoryStats = _stats_for_the_script
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _after(_before_reset, getattr(torch._C, name)))
    for name in ("_cuda_resetAccumulatedMemoryStats", "_accelerator_resetAccumulatedStats"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _after(_keep_failures, getattr(torch._C, name)))
    if records_history():
        torch.cuda.memory._record_memory_history(max_entries=EVENTS, stacks="python")


def records_history():
    """Return whether the allocator keeps its history, for a snapshot at the end."""
    return bool(os.environ.get("EMULATED_SNAPSHOT"))


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


def _keep_failures(device=0):
    """Keep the counts of failures of a device, before the script resets them."""
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
    """Return the peaks of the current device in bytes since the last call, and begin anew."""
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
        torch.cuda.memory._dump_snapshot(f"{file}.rank{rank}" if rank else file)
    folder = os.environ.get("EMULATED_REPORTS")
    if not folder or not peaks():
        return
    report = {"rank": rank, "peaks": peaks(), "lines": reads.lines, "called": called()}
    report |= {"kept": streams.kept_by(), "groups": library.communicators(), **failures()}
    path = os.path.join(folder, f"{os.getpid()}.json")
    # The launcher reads all *.json at the end, also of processes that it has killed meanwhile.
    with open(f"{path}.part", "w") as part:
        json.dump(report, part)
    os.replace(f"{path}.part", path)
