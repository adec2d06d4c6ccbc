"""The peak memory of each phase of a training, by PyTorch's counters or by the ledger."""

import contextlib

from shared.memory.counters import Counters
from shared.memory.ledger import Ledger, tensors

# Optimizer states appear at the end of the first update. So the second update is the first that
# holds everything from its start.
LEDGER_UPDATES = 3


class Phases:
    """Measures the phases of a training on a device.

    On a CPU the ledger counts the memory. On CUDA, PyTorch's own counters measure everything, and
    the ledger adds the breakdown and what the host holds. While the model is trained, the ledger is
    active in the first LEDGER_UPDATES updates only.

    Attributes:
        found: {name of a phase: a record's Phase}.
        counters: memory.counters.Counters of the phase that is being measured.
        shapes: of the first input of each update that the ledger has seen.
    """

    def __init__(self, device):
        self.device, self.cuda = device, device.type == "cuda"
        self.counters, self.ledger = Counters(device), Ledger()
        self.found, self.shapes = {}, []
        self._listening = contextlib.ExitStack()
        self._watching = False
        self._watched = 0  # where the last update that the ledger has seen ends in its log

    @contextlib.contextmanager
    def load(self):
        """Measures what happens inside, building the model, as the phase "load"."""
        self.counters.start()
        with self.ledger:
            yield
        self.counters.read()
        self.ledger.training()
        self._watched = len(self.ledger.events)
        self.found["load"] = self._phase(0, self._watched)

    @contextlib.contextmanager
    def train(self):
        """Measures the updates inside, from begin() to end(), as the phase "train"."""
        since = len(self.ledger.events)
        self.counters.start()
        with self._listening:  # closes the ledger if an update raises
            yield
        self.found["train"] = self._phase(since, self._watched)

    def begin(self, inputs, labels):
        """Notes that an update begins, with a batch."""
        if len(self.shapes) < LEDGER_UPDATES:
            # The ledger is active only during the update. While a batch is fetched, it would count
            # the data set too.
            for t in tensors((inputs, labels)):
                self.ledger.note(t, "inputs")
            self.shapes.append(list(next(tensors(inputs)).shape))
            self._listening.enter_context(self.ledger)
            self._watching = True

    def end(self):
        """Notes that the update has ended."""
        if self._watching:
            self._listening.close()
            self._watching = False
            self._watched = len(self.ledger.events)

    @contextlib.contextmanager
    def apart(self, name):
        """Measures what happens inside, in the middle of the training, as a phase of its own.

        If it happens several times, the largest peak counts.
        """
        since = len(self.ledger.events)
        self.counters.read()
        training, self.counters = self.counters, Counters(self.device)
        try:
            with self.ledger:
                yield
            self.counters.read()
            again = self._phase(since)
            found = self.found.setdefault(name, again)
            self.found[name] = max(found, again, key=lambda phase: phase["device_peak_gb"])
        finally:
            self.counters = training
            self.counters.reset()

    def _phase(self, since, until=None):
        peak, held = self.ledger.peak(self.device.type, since, until)
        host = self.ledger.peak("cpu", since, until)[0]
        return {
            "device_peak_gb": (self.counters.allocated if self.cuda else peak) / 1e9,
            "device_reserved_gb": self.counters.reserved / 1e9 if self.cuda else None,
            "host_peak_gb": host / 1e9 if self.cuda else None,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items()},
        }
