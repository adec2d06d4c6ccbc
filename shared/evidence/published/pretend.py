"""Runs a program that others have published on the simulated GPU, and reads PyTorch's counters.

The counters are those that the authors read, torch.cuda.max_memory_allocated() and
max_memory_reserved(); here they are computed, and nothing is trained. What an update costs is
counted beside them, and bounds its time.
"""

import collections
import contextlib

import torch

from shared.memory.blocks import summit
from shared.predict import allocator, gpu, processes
from shared.predict.bound import bound
from shared.predict.cost import Cost
from shared.predict.recorder import Recorder
from shared.predict.workspaces import Workspaces


class Pretended:
    """A GPU that a program believes to use, with its counters.

    `found`, from read(), is {name: {"allocated_gb", "reserved_gb", "breakdown_gb", "bound"}}.
    """

    def __init__(self, card, version, devices=1):
        """Prepares the process, the first of as many as devices; it can do nothing else any more.

        card is a predict.cards.Card; version PyTorch's, (major, minor).
        """
        gpu.register()
        if devices > 1:
            processes.pretend_processes(devices, gpu.DEVICE)
        self.card, self.version = card, version
        self.device, self.found = torch.device(gpu.DEVICE), {}
        self.cost = Cost(gpu.DEVICE)
        self.ledger = Recorder(lambda: "", Workspaces(card, version).of_gpu, self._seen)
        self._since = self._recorded = 0
        self._counting, self._counted = False, {}  # name -> (operations, how often per update)

    def run(self, program):
        """Runs a program, a function of this object; returns what it has read."""
        torch.set_num_threads(1)
        with gpu.tensors_without_memory(self.card, self.version), self.ledger:
            program(self)
        return self.found

    def training(self):
        """Notes that the model is built: what its forward pass makes from now on is activations."""
        self.ledger.training()

    def reset(self):
        """Forgets the peaks until now, and gives idle memory back to the GPU."""
        self._since = len(self.ledger.events)

    def record(self):
        """Begins a recording, which knows nothing of what is there already; read() then reads it.

        What is there must stay.
        """
        self._recorded = len(self.ledger.events)

    @contextlib.contextmanager
    def counted(self, name="update", per_update=1):
        """Counts what is done while the context is active, for the bound that read() gives.

        The last time counts, for so many times per update: 1 / 10 for the validation of a batch
        after every ten updates, if the published time includes that.
        """
        self.cost.start()
        self._counting = True
        yield
        self._counting = False
        self._counted[name] = list(self.cost.operations), per_update

    def _seen(self, *operation):
        if self._counting:
            self.cost.note(*operation)

    def _bound(self):
        """Returns the least time of an update and of what belongs to it, a record's Bound."""
        total = collections.defaultdict(collections.Counter)
        for operations, per_update in self._counted.values():
            for name, found in bound(operations, self.card.rates).items():
                if name != "by":
                    parts = found if isinstance(found, dict) else {name: found}
                    total[name].update({part: ms * per_update for part, ms in parts.items()})
        parts = total["parts_ms"]
        return {
            "ms": parts.total(),
            "by": max(parts, key=parts.get),
            "parts_ms": dict(parts),
            "beside_ms": dict(total["beside_ms"]),
            "in_cache_ms": total["in_cache_ms"].total(),
        }

    def read(self, name):
        """Reads the counters, and notes them with a name."""
        device = self.device.type
        reserved, events = allocator.replay(self.ledger.events, device, self._since)
        peak, held, _ = summit(events, device, self._since)
        for block, n in events[: self._recorded]:
            if block.device == device:
                peak -= n
                held[block.label] -= n
        self.found[name] = {
            "allocated_gb": peak / 1e9,
            "reserved_gb": reserved / 1e9,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items()},
            "bound": self._bound() if self._counted else None,
        }

    def noise(self, *shape, dtype=torch.float32):
        """Returns a tensor of inputs."""
        made = torch.empty(*shape, dtype=dtype, device=self.device)
        self.ledger.note(made, "inputs")
        return made

    def tokens(self, *shape):
        """Returns a tensor of tokens, of what masks them, or of labels."""
        return self.noise(*shape, dtype=torch.long)

    def train(
        self, forward, optimizer, micro_batches=1, late=False, updates=3, validation=None, per=0
    ):
        """Trains for some updates, each of them counted, and reads the counters as "peak".

        Args:
            forward: function that makes a batch and returns the loss.
            late: whether old gradients go between forward and backward pass, not after the step.
            validation: model, and function that makes a batch and computes what is wanted of it.
            per: how often that is done per update.
        """
        for _ in range(updates):
            with self.counted():
                for _ in range(micro_batches):
                    loss = forward()
                    if late:
                        optimizer.zero_grad()
                    loss.backward()
                optimizer.step()
                if not late:
                    optimizer.zero_grad()
        if validation:
            model, compute = validation
            model.eval()
            with torch.no_grad(), self.counted("validation", per):
                compute()
        self.read("peak")
