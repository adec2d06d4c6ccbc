"""The allocator's own history as a log of blocks: what each holds, and when it is freed."""

import torch

from shared.lab.predict.watch import BETWEEN
from shared.memory.blocks import KNOWN, Block, summit


class TracedBlock(Block):
    """A block of the allocator's, and where in the run it was handed out; None if not known.

    `shape` and `dtype` are of the tensor that an operation returned in it, `name` is of the
    parameter that it belongs to.
    """

    __slots__ = ("phase", "module", "line", "shape", "dtype", "name")

    def __init__(self, nbytes, label, phase, module, line, tensor):
        super().__init__(nbytes, "cuda", label)
        self.phase, self.module, self.line = phase, module, line
        self.shape, self.dtype = tensor
        self.name = None


class Trace:
    """The history of the current device's allocator, with what a Watch has seen meanwhile.

    `events` are (block, bytes), negative when freed; the bytes are those that were asked for. Of
    each event, `numbers` are those of operations, `phases` the phases, and `watched` (module, line
    of the script, None).
    """

    def __init__(self, watch):
        self._watch = watch
        self.events, self.numbers, self.phases, self.watched = [], [], [], []
        self._live, self._told = {}, iter([*watch.labels, (float("inf"), None, None, None)])
        self._next = next(self._told)
        history = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        for event in history:
            number, between, _ = event["user_metadata"].partition(BETWEEN)
            self._take(event, int(number or 0), not between)
        self._label_until(len(watch.places))

    def _take(self, event, number, within):
        phase, module, line, category = self._watch.places[number]
        self._label_until(number)
        if event["action"] == "alloc":
            results, change = self._watch.results[number], event["size"]
            if within and event["addr"] not in results:
                category = "workspaces"
            its = results.get(event["addr"], (None, None))
            block = TracedBlock(change, category, phase, module, line, its)
            self._live[event["addr"]] = block
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
        """Give blocks the categories that the script had told before an operation."""
        while self._next[0] <= number:
            _, address, category, name = self._next
            block = self._live.get(address)
            if block and block.label not in KNOWN:
                block.label, block.name = category, name
            self._next = next(self._told)

    def index(self, number):
        """Return the index of the first event that an operation, or one after it, has led to."""
        later = (i for i, its in enumerate(self.numbers) if its >= number)
        return next(later, len(self.numbers))

    def phase(self, peaks, since, until=None):
        """Return a record's phase, and where its peak is.

        Its `peaks` are PyTorch's own, in bytes. What they have more than was asked for is rounding.
        """
        requested, held, last = summit(self.events, "cuda", since, until)
        held = {**held, "rounding": peaks["allocated"] - requested}
        phase = {
            "device_peak_gb": peaks["allocated"] / 1e9,
            "device_reserved_gb": peaks["reserved"] / 1e9,
            "host_peak_gb": None,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items() if nbytes},
            "device_active_gb": peaks["active"] / 1e9,
        }
        at = {"phase": last.phase if last else "load", "module": last and last.module}
        return phase, {**at, "line": last and last.line and "{}:{}".format(*last.line)}

    def peak_at(self, since, until):
        """Return where a record's peak is, in a part of the events."""
        last = summit(self.events, "cuda", since, until)[2]
        return {"phase": last.phase if last else "load", "module": last and last.module}
