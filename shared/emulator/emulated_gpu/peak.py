"""The lines of a program that hold memory at the peak, from a snapshot of PyTorch's allocator.

A snapshot is what torch.cuda.memory._dump_snapshot() writes; this needs no PyTorch to read it.
https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
"""

import dataclasses
import itertools
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
    peaks = [(now, -i, trace) for trace in traces for i, (now, _) in enumerate(_held(trace))]
    now, index, trace = max(peaks, key=lambda peak: peak[:2], default=(0, 0, ()))
    if not now:
        return None
    _, held = next(itertools.islice(_held(trace), -index, None))
    by_line, by_type = {}, {}
    for event in held.values():
        line = _line(event["frames"])
        label = f"{line}, {event['type']}" if "type" in event else line
        by_line[line] = by_line.get(line, 0) + event["size"]
        by_type[label] = by_type.get(label, 0) + event["size"]
    largest = dict(sorted(by_line.items(), key=lambda item: -item[1]))
    return AtPeak(_line(trace[-index]["frames"]), largest, by_type)


def _held(trace):
    """Yield after each event the bytes in use, and {address: event} of what allocated them."""
    now, held = 0, {}
    for event in trace:
        if event["action"] == "alloc":
            held[event["addr"]] = event
            now += event["size"]
        # A history that begins late frees what it did not allocate.
        elif event["action"] == "free_completed" and event["addr"] in held:
            now -= held.pop(event["addr"])["size"]
        yield now, held


def _line(frames):
    """Return the innermost line outside of PyTorch and of this package, as "file:line"."""
    for frame in frames:
        name = frame["filename"]
        if not frame["line"] or OURS in name or name.startswith("<"):
            continue
        if not any(f"/site-packages/{package}/" in name for package in PACKAGES):
            return f"{name}:{frame['line']}"
    return NOWHERE
