"""Traces of PyTorch's allocator: those of real GPUs beside the same work, emulated.

The real ones were recorded with torch.cuda.memory, and are in public repositories. The folder
events has the actions and sizes of two by a student of Stanford's CS336 (MIT license), whose tensor
operations programs/course.py repeats.
"""

import difflib
import io
import itertools
import lzma
import pickle
import time

from proof import rows, run, third_party

# Of the two events of a free, only the second, after which the memory is available again.
ACTIONS = {"alloc", "free_completed", "segment_alloc", "segment_free"}
ACTIONS |= {"segment_map", "segment_unmap"}  # of expandable segments
# Each with the snapshot's origin.
STORED = {
    "train-128": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
    "train-512-bf16": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
}


def real(name):
    """Return the events of a real GPU: "a SIZE" (alloc), "f" (free), "S", "R" (of segments)."""
    with lzma.open(rows.HERE / "events" / f"{name}.txt.xz", "rt") as file:
        return file.read().splitlines()


def emulated(name):
    """Return the events of the same work on an emulated GPU.

    Raises:
        run.Failed: the program failed.
    """
    _, tokens, *precision = name.split("-")
    row = {**rows.DEFAULTS, "program": "course.train"}
    row["args"] = [tokens, *(f"{kind}=true" for kind in precision)]
    # From PyTorch 2.15 on, cuBLAS's workspace is otherwise taken and freed at each product.
    row["env"] = {"TORCH_CUBLAS_WORKSPACE_CACHE": "1"}
    return run.printed(run.run(row, None)).splitlines()


class Numbers(pickle.Unpickler):
    """An Unpickler of numbers, texts, lists and dictionaries; it runs no code of the file."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is not read")


def history(snapshot):
    """Return the events of the busiest device in a snapshot, "ACTION SIZE", and bytes reserved."""
    content = Numbers(io.BytesIO(snapshot)).load()
    traces = content["device_traces"]
    # A snapshot has a trace for each GPU of the machine; one of them was at work.
    device = max(range(len(traces)), key=lambda i: len(traces[i]))
    events = [f"{e['action']} {e['size']}" for e in traces[device] if e["action"] in ACTIONS]
    segments = (s for s in content["segments"] if s["device"] == device)
    return events, sum(segment["total_size"] for segment in segments)


def compare(group, folder):
    """Run the script of some rows, unedited; yield a record for each of its snapshots.

    Raises:
        run.Failed: it wrote no snapshot.
    """
    run.prepare(group[0], folder)
    checkout = run.checkout(group[0], folder)
    written = [checkout / row["writes"] for row in group]
    for file in written:
        file.unlink(missing_ok=True)  # the real one may lie there
    # The authors' folders for results are often not in their repositories.
    make = (checkout / name for name in group[0]["make"])
    for needed in [*(file.parent for file in written), *make]:
        needed.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    done = run.run(group[0], folder)
    # A row's share: one run has written the snapshots of all of them.
    seconds = (time.perf_counter() - began) / len(group)
    for row, file in zip(group, written):
        # The snapshot counts, not the exit code: what a script does after it is not compared.
        if not file.exists():
            raise run.Failed(f"{row['name']} wrote no snapshot: {done.stderr.strip()[-500:]}")
        # The real snapshot is in the commit that has it.
        name = f"{row.get('snapshot_commit', row['commit'])}:{row['snapshot']}"
        events, reserved = history(third_party.git("-C", checkout, "show", name))
        emulated, emulated_reserved = history(file.read_bytes())
        yield {
            **{key: row[key] for key in ("name", "what", "repository", "commit", "torch", "card")},
            "events": len(events),
            "equal": equal(events, emulated),
            "verdict": verdict(events, emulated),
            "reserved": reserved,
            "emulated_reserved": emulated_reserved,
            "seconds": seconds,
        }


def in_order(events):
    """Return events, texts that begin with f if memory is freed, with each run of frees sorted.

    Autocast frees its copies of the weights in the order of a hash of addresses.
    """
    runs = itertools.groupby(events, lambda event: event[0] == "f")
    return [event for is_free, run in runs for event in (sorted(run) if is_free else run)]


def verdict(real, emulated):
    """Return "equal", "order of frees" or "different"."""
    if real == emulated:
        return "equal"
    return "order of frees" if in_order(real) == in_order(emulated) else "different"


def equal(real, emulated):
    """Return the number of equal events, in order; the order within a run of frees is ignored."""
    expected = in_order(real)
    events = in_order(emulated)
    if expected == events:
        return len(expected)
    # Without autojunk, which would ignore frequent sizes.
    blocks = difflib.SequenceMatcher(None, expected, events, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)
