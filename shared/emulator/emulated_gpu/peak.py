"""The lines of a program that hold memory at the peak, from a snapshot of PyTorch's allocator.

A snapshot is what torch.cuda.memory._dump_snapshot() writes; this needs no PyTorch to read it.
https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
"""

import dataclasses
import pickle
from pathlib import Path

PACKAGES = ("torch", "torchvision", "triton")  # whose own lines say little about a program
OURS = f"/{Path(__file__).parent.name}/"  # wherever the other process has found this package
# The autograd engine has threads of its own, on whose stacks no line of the program is.
NOWHERE = "the backward pass"


@dataclasses.dataclass(frozen=True)
class AtPeak:
    """The memory of a GPU at the peak of active memory, by line of the program."""

    line: str  # "file:line" that allocated last before it, or NOWHERE
    held: dict  # {"file:line": bytes that are still there}, the largest first
    typed: dict  # the same by {"file:line, type"}, where PyTorch has told the type


class _Plain(pickle.Unpickler):
    """An Unpickler of lists, dictionaries, numbers and texts; it runs no code of the file."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"a snapshot has no {module}.{name}")


def read(file):
    """Return the AtPeak of the GPU with the largest peak; None if nothing was allocated.

    Raises:
        pickle.UnpicklingError: the file is no snapshot.
    """
    with open(file, "rb") as f:
        traces = _Plain(f).load()["device_traces"]
    peaks = [(*_highest(trace), trace) for trace in traces]
    size, index, trace = max(peaks, key=lambda peak: peak[0], default=(0, 0, ()))
    if not size:
        return None
    held = {}  # address -> (line, type, bytes)
    for event in trace[: index + 1]:
        if event["action"] == "alloc":
            held[event["addr"]] = _line(event["frames"]), event.get("type"), event["size"]
        elif event["action"] == "free_completed":
            held.pop(event["addr"], None)
    by_line, by_type = {}, {}
    for line, name, nbytes in held.values():
        label = f"{line}, {name}" if name else line
        by_line[line] = by_line.get(line, 0) + nbytes
        by_type[label] = by_type.get(label, 0) + nbytes
    largest = dict(sorted(by_line.items(), key=lambda item: -item[1]))
    return AtPeak(_line(trace[index]["frames"]), largest, by_type)


def _highest(trace):
    """Return the largest sum of bytes that are allocated at once, and the event that reaches it."""
    sizes = {}  # address -> bytes; a history that begins late frees what it did not allocate
    now = most = at = 0
    for i, event in enumerate(trace):
        if event["action"] == "alloc":
            sizes[event["addr"]] = event["size"]
            now += event["size"]
            if now > most:
                most, at = now, i
        elif event["action"] == "free_completed":
            now -= sizes.pop(event["addr"], 0)
    return most, at


def _line(frames):
    """Return the innermost line outside of PyTorch and of this package, as "file:line"."""
    for frame in frames:
        name = frame["filename"]
        if not frame["line"] or OURS in name or name.startswith("<"):
            continue
        if not any(f"/site-packages/{package}/" in name for package in PACKAGES):
            return f"{name}:{frame['line']}"
    return NOWHERE
