"""What each operation of a training allocates besides its results, beside what formulas say.

The formulas are those of shared/predict/workspaces.py. On a GPU, PyTorch's counter of requested
bytes is read before and after every operation: unlike the counter of allocated bytes, it contains
neither what sizes are rounded up by nor rests of blocks. Without a GPU, the counters of a
simulation take its place, which shows that this module finds what differs, and nothing else.
"""

import collections
import contextlib
import itertools

import torch

# The module has an underscore, but this is the documented way to see every operation.
from torch.utils._python_dispatch import TorchDispatchMode

from shared.memory import torch_private
from shared.memory.blocks import tensors
from shared.predict import cards, gpu
from shared.predict.simulation import Simulation
from shared.predict.workspaces import TABLE, Workspaces
from shared.records import scripts

# A few updates are enough: the first one makes what is kept, the second is as any later one.
WATCHED = 2
# Bytes. An operation without a formula is listed if it allocates more than LISTED for itself. A
# formula is right if it errs by no more than CLOSE (semaphores, seeds) or the share SHARE.
LISTED, CLOSE, SHARE = 10**6, 16 * 1024, 0.01


class CudaCounters:
    """Bytes that PyTorch has requested on the current GPU: at the start, and at most since then."""

    device = "cuda"

    def start(self):
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_stats()["requested_bytes.all.current"]

    def peak(self):
        return torch.cuda.memory_stats()["requested_bytes.all.peak"]


class LedgerCounters:
    """The same of a simulated GPU: the sum of what its ledger has logged."""

    device = gpu.DEVICE

    def __init__(self, ledger):
        self.ledger, self._read, self._now = ledger, 0, 0

    def start(self):
        self.peak()
        return self._now

    def peak(self):
        most = self._now
        for block, change in self.ledger.events[self._read :]:
            self._now += change if block.device == self.device else 0
            most = max(most, self._now)
        self._read = len(self.ledger.events)
        return most


class Watch(TorchDispatchMode):
    """Measures every operation while it is active.

    `found` is {(operation, inputs): a dict of operation, inputs, pass, bytes and calls}.
    """

    def __init__(self, counters, formulas):
        super().__init__()
        self.counters, self.formulas, self.found = counters, formulas, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:  # as in the ledger
            return args[0].device
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented  # such a tensor then calls operations on its parts
        kwargs = kwargs or {}
        given = self._storages((args, kwargs))
        before = self.counters.start()
        out = func(*args, **kwargs)
        most = self.counters.peak()
        results = self._storages(out)
        new = sum(nbytes for key, nbytes in results.items() if key not in given)
        if given or results:
            self._note(func, args, kwargs, out, max(0, most - before - new))
        return out

    def _storages(self, x):
        """Returns the storages of tensors on the device, {id: bytes}."""
        there = (t for t in tensors(x) if t.device.type == self.counters.device)
        storages = (t.untyped_storage() for t in there)
        return {id(s): s.nbytes() for s in storages}

    def _note(self, func, args, kwargs, out, measured):
        formula, backward = None, torch_private.in_backward()
        if func in TABLE and args[0].device.type == self.counters.device:
            thread = "backward" if backward else "forward"
            at_once, kept = self.formulas.of(func, args, out, thread)
            formula = sum(kept) + max(map(sum, at_once), default=0)
        if formula is None and measured <= LISTED or not (formula or measured):
            return
        row = {
            "operation": str(func),
            "inputs": described((args, kwargs)),
            "pass": "backward" if backward else "forward or step",
            "measured": measured,
            "formula": formula,
        }
        key = row["operation"], row["inputs"]
        before = self.found.get(key, {**row, "calls": 0})
        worst = max(before, row, key=lambda r: (abs(difference(r)), r["measured"]))
        self.found[key] = {**worst, "calls": before["calls"] + 1}


def described(x):
    """Writes what an operation has got: the shapes of tensors with their types, and how many."""
    kinds = (f"{'x'.join(map(str, t.shape)) or '1'} {str(t.dtype)[6:]}" for t in tensors(x))
    many = collections.Counter(kinds).items()
    texts = [text if n == 1 else f"{n} of {text}" for text, n in many]
    return ", ".join(texts[:4] + ["..."] * (len(texts) > 4))


def difference(row):
    """Returns by how many bytes a formula errs; of an operation without one, what it would say."""
    return row["measured"] - (row["formula"] or 0)


def right(row):
    """Tells whether a formula says what was measured; without one, all that was is too much."""
    allowed = max(CLOSE, SHARE * row["measured"])
    return row["formula"] is not None and abs(difference(row)) <= allowed


def on_gpu(name, options, snapshot=None):
    """Returns what Watch finds while a script trains on this GPU, in this process.

    The snapshot, if any, is a file for the history of all allocations of one more update, to be
    looked at on https://docs.pytorch.org/memory_viz.
    """
    script, updates = scripts.get(name).load(), itertools.count()
    card = cards.of_this_machine(torch.cuda.get_device_properties(0))
    watch = Watch(CudaCounters(), Workspaces(card, cards.INSTALLED))
    train_step = script.train_step

    def watched(*args):
        if next(updates) < WATCHED:
            with watch:
                return train_step(*args)
        with _history(snapshot):
            return train_step(*args)

    script.train_step = watched
    script.main([*options, "--max-steps", str(WATCHED + bool(snapshot))])
    return [*watch.found.values()]


@contextlib.contextmanager
def _history(file):
    """Writes all that the CUDA allocator does while the context is active into a file, if any.

    Documented, in spite of the underscores:
    https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
    """
    if file is None:
        yield
        return
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    try:
        yield
        torch.cuda.memory._dump_snapshot(str(file))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def simulated(name, options):
    """Does the same as on_gpu() on a simulated GPU, which allocates what the formulas say."""
    simulation = Simulation(name, options)
    formulas = Workspaces(simulation.card, options.torch)
    watch = Watch(LedgerCounters(simulation.ledger), formulas)
    script, train_step = simulation.script, simulation.script.train_step

    def watched(*args):
        with watch:
            return train_step(*args)

    script.train_step = watched
    simulation.run(simulation.args.batch_size, simulation.args.micro_batch_size, WATCHED)
    return [*watch.found.values()]
