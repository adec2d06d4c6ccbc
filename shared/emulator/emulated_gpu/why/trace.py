"""The allocator's own history as a log of blocks, with the category and origin of each."""

import bisect
import collections

import torch

from emulated_gpu import process
from emulated_gpu.accounting.blocks import KNOWN, Block, summit
from emulated_gpu.why.watch import BETWEEN, IS_TOLD


class TracedBlock(Block):
    """A block of the allocator, and the place in the run where it was allocated, None if unknown.

    `shape` and `dtype` are of the tensor that an operation returned in it, `name` of the parameter
    that it belongs to.
    """

    __slots__ = ("phase", "module", "line", "shape", "dtype", "name")

    def __init__(self, nbytes, label, phase, module, line, tensor):
        super().__init__(nbytes, "cuda", label)
        self.phase, self.module, self.line = phase, module, line
        self.shape, self.dtype = tensor
        self.name = None


class Trace:
    """The history of the current device's allocator, with the operations that a Watch has seen.

    Attributes:
        events: (block, bytes), negative when freed; the bytes are those that were requested.
        numbers: of each event, the number of the operation that led to it.
        phases: of each event, the phase.
        watched: of each event, (module, line of the script, None).
        segments: (number of the operation, line, bytes) of memory that the allocator has taken.
    """

    def __init__(self, watch):
        self._watch = watch
        self.events = []
        self.numbers = []
        self.phases = []
        self.watched = []
        self.segments = []
        self._live = {}  # {address: its block}
        # In the order of operations; the last one is never reached.
        self._labels = iter([*watch.labels, (float("inf"), None, None, None)])
        self._next_label = next(self._labels)
        history = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        for event, number, within in self._told(history) if IS_TOLD else self._counted(history):
            self._take(event, number, within)
        self._label_until(len(watch.places))

    def _told(self, history):
        """Yield each event, the number of its operation, and whether it happened within that."""
        for event in history:
            number, between, _ = event["user_metadata"].partition(BETWEEN)
            # What was allocated before the first operation has no number.
            yield event, int(number or 0), not between

    def _counted(self, history):
        """Yield the same, by the number of allocations and frees before each event."""
        changes = [event for event in history if event["action"] in ("alloc", "free_requested")]
        # The history may begin late, and the counter has all.
        count = process.count_changes() - len(changes)
        for event in history:
            number = max(bisect.bisect_right(self._watch.counts, count) - 1, 0)
            yield event, number, False
            count += event["action"] in ("alloc", "free_requested")

    def _take(self, event, number, within):
        """Add an event of the allocator's history to the log."""
        phase, module, line, category = self._watch.places[number]
        self._label_until(number)
        if event["action"] == "alloc":
            results = self._watch.results[number]
            change = event["size"]
            # The operation returned no tensor in this block: it allocated a workspace.
            if within and event["addr"] not in results:
                category = "workspaces"
            tensor = results.get(event["addr"], (None, None))
            block = TracedBlock(change, category, phase, module, line, tensor)
            self._live[event["addr"]] = block
        elif event["action"] == "segment_alloc":
            self.segments.append((number, line, event["size"]))
            return
        # By then PyTorch counts a block as no longer allocated; while another stream uses it, it is
        # active. https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.memory_stats.html
        # A block from before the history began is not among the live ones.
        elif event["action"] == "free_requested" and event["addr"] in self._live:
            block = self._live.pop(event["addr"])
            change = -block.nbytes
        else:
            return
        self.events.append((block, change))
        self.numbers.append(number)
        self.phases.append(phase)
        self.watched.append((module, *(line[1:] if line else (None, None))))

    def _label_until(self, number):
        """Give blocks the categories that were noted until an operation."""
        while self._next_label[0] <= number:
            _, address, category, name = self._next_label
            block = self._live.get(address)
            # A known category stays, as in the ledger; the others are guesses.
            if block and block.label not in KNOWN:
                block.label = category
                block.name = name
            self._next_label = next(self._labels)

    def index(self, number):
        """Return the index of the first event of an operation, or of a later operation."""
        later = (i for i, of_event in enumerate(self.numbers) if of_event >= number)
        return next(later, len(self.numbers))

    def phase(self, peaks, since, until=None):
        """Return a record's phase, and the place of its peak.

        The `peaks` are of PyTorch's counters, in bytes: more than was requested is rounding.
        """
        requested, breakdown, last = summit(self.events, "cuda", since, until)
        # PyTorch rounds each block up to 512 bytes, and leaves small remainders unsplit.
        breakdown = {**breakdown, "rounding": peaks["allocated"] - requested}
        phase = {
            "device_peak_gb": peaks["allocated"] / 1e9,
            "device_reserved_gb": peaks["reserved"] / 1e9,
            "host_peak_gb": None,
            "breakdown_gb": {label: size / 1e9 for label, size in breakdown.items() if size},
            "device_active_gb": peaks["active"] / 1e9,
        }
        return phase, {**_place(last), "line": last and last.line and "{}:{}".format(*last.line)}

    def at_peak(self, since, until, key):
        """Return the memory at the peak, {category: {key(block): GB}}, the largest first."""
        _, _, last = summit(self.events, "cuda", since, until)
        live = {}
        for block, change in self.events[: until if last else since]:
            if change < 0:
                del live[block]
                continue
            live[block] = block.nbytes
            if block is last:
                break
        sizes = {}
        for block, nbytes in sorted(live.items(), key=lambda item: -item[1]):
            of_category = sizes.setdefault(block.label, {})
            of_category[key(block)] = of_category.get(key(block), 0) + nbytes / 1e9
        return sizes

    def grown_at(self, name, first, until, end):
        """Return the line, FILE:LINE, that has added most to the memory that grows with updates.

        Args:
            name: "allocated" or "reserved".
            first, until, end: numbers of operations at the end of the first, the second last and
                the last update. What an update leaves for the next one alone is not counted.
        """
        added = [(line, size) for number, line, size in self.segments if first <= number < end]
        if name == "allocated":
            since, until, end = map(self.index, (first, until, end))
            freed = {block for block, change in self.events[:end] if change < 0}
            kept = (block for block, _ in self.events[since:until] if block not in freed)
            added = [(block.line, block.nbytes) for block in kept]
        sizes = collections.Counter()
        for line, size in added:
            if line:
                sizes["{}:{}".format(*line)] += size
        return max(sizes, key=sizes.get, default=None)

    def largest(self, since, until):
        """Return the bytes of the largest block of some operations that is left at their end."""
        blocks = collections.Counter()
        for block, change in self.events[self.index(since) : self.index(until)]:
            blocks[block] += change
        return max(blocks.values(), default=0)

    def peak_at(self, since, until):
        """Return the place of the peak in a part of the events, as in a record."""
        return _place(summit(self.events, "cuda", since, until)[2])


def _place(block):
    """Return the place in the run where a block was allocated."""
    # Without a block, that peak was there when the events began: loading has left it.
    return {"phase": block.phase if block else "load", "module": block and block.module}
