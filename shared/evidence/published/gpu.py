"""Run a published program on an emulated GPU, and read PyTorch's memory counters.

The counters are those that the authors read, torch.cuda.max_memory_allocated() and
max_memory_reserved(). The cost of an update is counted, too, and gives a bound on its time.
"""

import torch
import torch.distributed as dist

from shared.emulator import launch
from shared.predict.bound import bound
from shared.predict.cost import Cost


class Gpu:
    """The emulated GPU of this process, as a program uses it.

    `readings`, filled by read(), are {name: {"allocated_gb", "reserved_gb", "bound"}}.
    """

    def __init__(self, card, devices=1):
        """Take a card, an emulator.cards.Card; with several devices, as the first of them."""
        launch.become(launch.settings(card, devices, alone=devices > 1))
        self.card, self.device = card, torch.device("cuda")
        self.readings = {}
        self.cost = Cost("cuda", lambda: torch.cuda.current_stream().cuda_stream)
        self._recorded = 0
        if devices > 1:
            dist.init_process_group("nccl")

    def run(self, program):
        """Run a program, a function of this object; return its readings."""
        from emulated_gpu import values

        torch.set_num_threads(1)
        values.watchers.append(self)
        program(self)
        return self.readings

    # What the emulator tells of each operation.

    def begins(self, func):
        pass

    def ends(self, _, func, args, kwargs, out):
        self.cost.note(self, func, args, kwargs, out)

    def block(self, tensor):
        return tensor.data_ptr() if tensor.layout == torch.strided else id(tensor)

    # What a program calls.

    def reset(self):
        """Reset the peaks, and give idle memory back to the GPU."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def record(self):
        """Start a recording that excludes what is already allocated; read() then reads it.

        What is already allocated must stay.
        """
        self._recorded = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    def update(self):
        """Mark the start of an update; the bound that read() gives is that of the last one."""
        self.cost.start()

    def read(self, name):
        """Read the counters, and store them under a name."""
        self.readings[name] = {
            "allocated_gb": (torch.cuda.max_memory_allocated() - self._recorded) / 1e9,
            "reserved_gb": torch.cuda.max_memory_reserved() / 1e9,
            "bound": bound(self.cost.operations, self.card.rates),
        }

    def noise(self, *shape, dtype=torch.float32):
        """Return an uninitialized tensor."""
        return torch.empty(*shape, dtype=dtype, device=self.device)

    def tokens(self, *shape):
        """Return a tensor of tokens, of an attention mask, or of labels: zeros."""
        return torch.zeros(*shape, dtype=torch.long, device=self.device)

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
