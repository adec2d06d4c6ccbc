"""The report of a process: PyTorch's own peaks, lines that read assumptions, names of functions."""

import atexit
import ctypes
import json
import os

import torch

from emulated_gpu.inside import reads

PEAKS = {"allocated": "allocated_bytes", "active": "active_bytes", "reserved": "reserved_bytes"}

_most = {}  # device -> {name: bytes}, over all that the script has reset
_unseen = {}  # device -> {counter: bytes}, peaks that anew() has reset, and not the script
_stats = torch._C._cuda_memoryStats
_written = None  # process that has written its report


def begin():
    """Write a report at the end of this process, and a snapshot if one is wanted."""
    atexit.register(write)
    atexit.register(ctypes.CDLL(None).emulator_end)
    os._exit = _after(lambda *_: write(), os._exit)  # some programs end like this
    torch._C._cuda_memoryStats = _as_the_script_sees
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _after(_reset, getattr(torch._C, name)))
    if os.environ.get("EMULATED_SNAPSHOT"):
        torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python")


def _after(first, original):
    def replaced(*args):
        first(*args)
        return original(*args)

    return replaced


def _as_the_script_sees(device):
    found = _stats(device)
    for counter, peak in _unseen.get(device, {}).items():
        found[counter]["all"]["peak"] = max(found[counter]["all"]["peak"], peak)
    return found


def _reset(device=0):
    keep(device)
    _unseen.pop(device, None)


def keep(device=0):
    """Keep the peaks of a device, in bytes, before the script resets them, or ends."""
    found = _stats(device)
    most = _most.setdefault(device, dict.fromkeys(PEAKS, 0))
    for name, counter in PEAKS.items():
        most[name] = max(most[name], found[counter]["all"]["peak"])


def peaks():
    """Return the peaks of the devices in use, {device: {"allocated", "active", "reserved"}}."""
    for device in range(torch.cuda.device_count()):
        keep(device)
    return {device: most for device, most in _most.items() if most["reserved"]}


def anew():
    """Forget the peaks of the current device, and return them."""
    device = torch.cuda.current_device()
    keep(device)
    found, seen = _most.pop(device), _as_the_script_sees(device)
    torch.cuda.reset_peak_memory_stats(device)
    del _most[device]
    _unseen[device] = {counter: seen[counter]["all"]["peak"] for counter in PEAKS.values()}
    return found


def called():
    """Return the names of functions that were called, of which nothing else is known."""
    function = ctypes.CDLL(None).emulator_called
    function.restype = ctypes.c_size_t
    buffer = ctypes.create_string_buffer(1 << 20)
    function(buffer, ctypes.c_size_t(len(buffer)))
    return buffer.value.decode().splitlines()


def write():
    """Write the report of this process, once, if it has used a GPU."""
    global _written
    folder = os.environ.get("EMULATED_REPORTS")
    if _written == os.getpid() or not torch.cuda.is_initialized():
        return
    _written = os.getpid()
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))
    if file := os.environ.get("EMULATED_SNAPSHOT"):
        torch.cuda.memory._dump_snapshot(f"{file}.rank{rank}" if rank else file)
    if not folder or not peaks():
        return
    found = {
        "rank": rank,
        "peaks": peaks(),
        "lines": reads.lines,
        "called": called(),
    }
    path = os.path.join(folder, f"{os.getpid()}.json")
    with open(f"{path}.part", "w") as part:
        json.dump(found, part)
    os.replace(f"{path}.part", path)
