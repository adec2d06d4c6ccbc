"""Runs a program that others have published on the simulated GPU, and reads PyTorch's counters.

The counters are those that the authors read, torch.cuda.max_memory_allocated() and
max_memory_reserved(); here they are computed, and nothing is trained.
"""

import torch

from shared.memory.ledger import Ledger, summit
from shared.predict import allocator, gpu, processes
from shared.predict.whereabouts import Whereabouts
from shared.predict.workspaces import Workspaces


class Pretended:
    """A GPU that a program believes to use, with its counters.

    Attributes:
        device: torch.device, for tensors.
        found: {name: {"allocated_gb", "reserved_gb", "breakdown_gb"}}, from read().
    """

    def __init__(self, card, version, devices=1):
        """Prepares the process, which can do nothing else from now on.

        Args:
            card: predict.cards.Card.
            version: of PyTorch, (major, minor).
            devices: how many GPUs; this process is the first of so many.
        """
        gpu.register()
        if devices > 1:
            processes.pretend_processes(devices, gpu.DEVICE)
        self.card, self.version = card, version
        self.device, self.found = torch.device(gpu.DEVICE), {}
        self.whereabouts = Whereabouts()
        place = lambda: (self.whereabouts.module(), gpu.Stream.current)  # noqa: E731
        self.ledger = Ledger(place, Workspaces(card, version).of_gpu)
        self._since = self._recorded = 0

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
        }

    def noise(self, *shape, dtype=torch.float32):
        """Returns a tensor of inputs, or of tokens if the type is one of integers."""
        made = torch.empty(*shape, dtype=dtype, device=self.device)
        self.ledger.note(made, "inputs")
        return made
