"""Workspaces that the operations of a run allocate besides their results, measured and by formula.

The formulas are those of shared/predict/workspaces.py. On a GPU, PyTorch's counter of requested
bytes is read before and after every operation: unlike the counter of allocated bytes, it includes
neither rounding nor the remainders of blocks. Without a GPU, the counters of a simulation take its
place, which only tests that this module finds differences.
"""

import collections
import contextlib
import itertools

import torch

# The module has an underscore, but this is the documented way to see every operation.
from torch.utils._python_dispatch import TorchDispatchMode

from shared.emulator import cards
from shared.memory import torch_private
from shared.memory.blocks import tensors
from shared.predict import gpu, machine
from shared.predict.simulation import Simulation
from shared.predict.workspaces import TABLE, Workspaces
from shared.records import scripts

# Two updates are enough: the first allocates what is kept, the second is like any later one.
WATCHED = 2
# In bytes. An operation without a formula is listed if its workspace is larger than LISTED. A
# formula is right if it errs by at most CLOSE (semaphores, seeds) or the share SHARE.
LISTED, CLOSE, SHARE = 10**6, 16 * 1024, 0.01


class CudaCounters:
    """Counters of the bytes requested on the current GPU: at the start, and their peak since."""

    device = "cuda"

    def start(self):
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_stats()["requested_bytes.all.current"]

    def peak(self):
        return torch.cuda.memory_stats()["requested_bytes.all.peak"]


class LedgerCounters:
    """The same counters of a simulated GPU: sums of the changes in its ledger."""

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
    """Dispatch mode that measures every operation while it is active.

    `found` is {(operation, inputs): a dict of operation, inputs, pass, bytes and calls}.
    """

    def __init__(self, counters, formulas):
        super().__init__()
        self.counters, self.formulas, self.found = counters, formulas, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:  # as in the ledger
            return args[0].device
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented  # the subclass then calls operations on its parts
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
        """Return the storages of tensors on the device, {id: bytes}."""
        there = (t for t in tensors(x) if t.device.type == self.counters.device)
        return {id(s): s.nbytes() for s in (t.untyped_storage() for t in there)}

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
    """Return a description of an operation's inputs: tensors by shape and type, with counts."""
    kinds = (f"{'x'.join(map(str, t.shape)) or '1'} {str(t.dtype)[6:]}" for t in tensors(x))
    texts = [text if n == 1 else f"{n} of {text}" for text, n in collections.Counter(kinds).items()]
    return ", ".join(texts[:4] + ["..."] * (len(texts) > 4))


def difference(row):
    """Return a formula's error in bytes; for an operation without one, all that was measured."""
    return row["measured"] - (row["formula"] or 0)


def right(row):
    """Return whether an operation has a formula that agrees with the measurement."""
    allowed = max(CLOSE, SHARE * row["measured"])
    return row["formula"] is not None and abs(difference(row)) <= allowed


def on_gpu(name, options, snapshot=None):
    """Return the results of Watch while a script trains on this GPU, in this process.

    The snapshot, if any, is a file for the allocation history of one more update, to be viewed at
    https://docs.pytorch.org/memory_viz.
    """
    script, updates = scripts.get(name).load(), itertools.count()
    card = cards.of_this_machine(torch.cuda.get_device_properties(0))
    watch = Watch(CudaCounters(), Workspaces(card, machine.INSTALLED))
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
    """Write the CUDA allocator's history while the context is active to a file, if any.

    These functions are documented, despite their underscores:
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
    """Return the same as on_gpu() for a simulated GPU, which allocates what the formulas say."""
    simulation = Simulation(name, options)
    watch = Watch(LedgerCounters(simulation.ledger), Workspaces(simulation.card, options.torch))
    script, train_step = simulation.script, simulation.script.train_step

    def watched(*args):
        with watch:
            return train_step(*args)

    script.train_step = watched
    simulation.run(simulation.args.batch_size, simulation.args.micro_batch_size, WATCHED)
    return [*watch.found.values()]
