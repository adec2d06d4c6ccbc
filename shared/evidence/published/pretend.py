"""Run a published program on the simulated GPU, and read PyTorch's memory counters.

The counters are those that the authors read, torch.cuda.max_memory_allocated() and
max_memory_reserved(); here they are computed, and nothing is trained. The cost of an update is
counted, too, and gives a bound on its time.
"""

import torch

from shared.memory.blocks import summit
from shared.predict import allocator, gpu, processes
from shared.predict.bound import bound
from shared.predict.cost import Cost
from shared.predict.recorder import Recorder
from shared.predict.workspaces import Workspaces


class Pretended:
    """A simulated GPU, with its counters, that a program uses like a real one.

    `found`, filled by read(), is {name: {"allocated_gb", "reserved_gb", "breakdown_gb", "bound"}}.
    """

    def __init__(self, card, version, devices=1):
        """Prepare this process as the first of `devices`; it can do nothing else afterwards.

        card is an emulator.cards.Card, version that of PyTorch, (major, minor).
        """
        gpu.register()
        if devices > 1:
            processes.pretend_processes(devices, gpu.DEVICE)
        self.card, self.version = card, version
        self.device, self.found = torch.device(gpu.DEVICE), {}
        self.cost = Cost(gpu.DEVICE, lambda: gpu.Stream.current)
        self.ledger = Recorder(lambda: "", Workspaces(card, version).of_gpu, self.cost.note)
        self._since = self._recorded = 0

    def run(self, program):
        """Run a program, a function of this object; return its readings."""
        torch.set_num_threads(1)
        with gpu.tensors_without_memory(self.card, self.version), self.ledger:
            program(self)
        return self.found

    def training(self):
        """Mark the model as built: tensors of its forward pass are activations from now on."""
        self.ledger.training()

    def reset(self):
        """Reset the peaks, and give idle memory back to the GPU."""
        self._since = len(self.ledger.events)

    def record(self):
        """Start a recording that excludes what is already allocated; read() then reads it.

        What is already allocated must stay.
        """
        self._recorded = len(self.ledger.events)

    def update(self):
        """Mark the start of an update; the bound that read() gives is that of the last one."""
        self.cost.start()

    def read(self, name):
        """Read the counters, and store them under a name."""
        device = self.device.type
        replayed = allocator.replay(self.ledger.events, device, self._since)
        peak, held, _ = summit(replayed.events, device, self._since)
        for block, n in replayed.events[: self._recorded]:
            if block.device == device:
                peak -= n
                held[block.label] -= n
        self.found[name] = {
            "allocated_gb": peak / 1e9,
            "reserved_gb": replayed.allocator.peak / 1e9,
            "breakdown_gb": {label: nbytes / 1e9 for label, nbytes in held.items()},
            "bound": bound(self.cost.operations, self.card.rates),
        }

    def noise(self, *shape, dtype=torch.float32):
        """Return an uninitialized tensor that counts as inputs."""
        made = torch.empty(*shape, dtype=dtype, device=self.device)
        self.ledger.note(made, "inputs")
        return made

    def tokens(self, *shape):
        """Return a tensor of tokens, of an attention mask, or of labels."""
        return self.noise(*shape, dtype=torch.long)

    def train(self, forward, optimizer, late=False):
        """Train for three updates, and read the counters as "peak".

        Args:
            forward: function that makes a batch and returns the loss.
            late: whether to free gradients before the backward pass instead of after the step.
        """
        for _ in range(3):
            self.update()
            loss = forward()
            if late:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not late:
                optimizer.zero_grad()
        self.read("peak")
