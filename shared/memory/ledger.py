"""A ledger of tensor memory: when each storage is allocated and freed, and its category.

PyTorch counts memory on CUDA devices, but not on a CPU, where the resident set of the process
includes libraries and what the C allocator keeps. So the ledger intercepts operations, and logs
when each storage is allocated and freed. It does not see memory that a kernel frees itself.
"""

import contextlib
import weakref

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook as on_parameter
from torch.optim.optimizer import register_optimizer_step_post_hook as after_step
from torch.optim.optimizer import register_optimizer_step_pre_hook as before_step
from torch.utils._python_dispatch import TorchDispatchMode  # documented, in spite of its "_"

from shared.memory.accounting import torch_private
from shared.memory.accounting.blocks import KNOWN, Block, parts_of, summit, tensors


class Ledger(TorchDispatchMode):
    """A context that logs tensor memory; it can be entered several times.

    A storage that was allocated while the ledger was not active counts from the first operation
    that returns it. Releases always count. A category that becomes known only later (of a gradient,
    at the optimizer step) applies from the allocation on. So the breakdown is computed afterwards,
    from `events`, a list of (block, bytes), negative when freed.
    """

    def __init__(self):
        super().__init__()
        self.events = []
        # id of a storage -> block. PyTorch keeps the Python object as long as the storage.
        self._live = {}
        self._building = True  # until the first forward pass, nothing is an activation
        self._stepping = False
        self.gathering = self.paused = False  # sharded weights are gathered; logging is paused

    def peak(self, device, since=0, until=None):
        """Return the peak in a part of the log, in bytes, and its breakdown; see summit()."""
        return summit(self.events, device, since, until)[:2]

    def training(self):
        """Mark the model as built: from now on, allocations of the forward pass are activations."""
        self._building = False

    def note(self, tensor, label=None):
        """Log a tensor's storage, if it is new, and set its category, if that is known."""
        if parts := parts_of(tensor):
            for part in parts:
                self.note(part, label)
            return
        storage = tensor.untyped_storage()
        block = self._live.get(id(storage))
        if block is None:
            self._born(storage, tensor.device.type, label or self._guess())
            weakref.finalize(storage, self._died, id(storage)).atexit = False
            return
        if block.nbytes != storage.nbytes():
            self.resized(storage)
            block = self._live[id(storage)]
        if label and block.label not in KNOWN:
            block.label = label

    def note_file(self, tensor):
        """Exclude a memory-mapped file: the operating system can drop its pages."""
        storage = tensor.untyped_storage()
        self._live[id(storage)] = Block(storage.nbytes(), "file", "temporaries")
        weakref.finalize(storage, self._live.pop, id(storage), None).atexit = False

    def note_group(self, group):
        """Note an optimizer's parameter group: the parameters, and their gradients if any."""
        for p in group["params"]:
            self.note(p, "parameters")
            if p.grad is not None:
                self.note(p.grad, "gradients")

    def resized(self, storage):
        """Log the new size of a storage."""
        if block := self._live.get(id(storage)):
            self._died(id(storage))
            self._born(storage, block.device, block.label)

    def _born(self, storage, device, label):
        block = Block(storage.nbytes(), device, label)
        self._live[id(storage)] = block
        self.events.append((block, block.nbytes))

    def _died(self, key):
        if block := self._live.pop(key, None):
            self.events.append((block, -block.nbytes))

    def _ran(self, func, args, kwargs, out):
        """Hook for subclasses, called after an operation whose results have been noted."""

    def _guess(self):
        if self.gathering:
            return "gathered"
        if self._building or self._stepping:
            return "temporaries"
        if not torch_private.in_backward():
            return "activations"
        # The backward pass runs with gradients disabled, except where activation checkpointing
        # repeats the forward pass.
        return "recomputed" if torch.is_grad_enabled() else "temporaries"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented  # the tensor then calls operations on its parts
        kwargs = kwargs or {}
        sends = torch_private.exchanges(func)
        out = torch_private.on_copies(func, args, kwargs) if sends else func(*args, **kwargs)
        if self.paused:
            return out
        label = None
        if func is torch.ops.aten._to_copy.default:
            # A batch that is moved to another device or converted still counts as inputs.
            source = self._live.get(id(args[0].untyped_storage()))
            label = "inputs" if source and source.label == "inputs" else None
        for t in tensors(out):
            self.note(t, label)
        self._ran(func, args, kwargs, out)
        if func.namespace in ("c10d", "fsdp"):  # buffers for communication
            for t in tensors((args, kwargs, out)):
                if id(t.untyped_storage()) in self._live:
                    self.note(t, "gathered")
        return out

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.callback(on_parameter(self._note_parameter).remove)
            stack.callback(before_step(self._before_step).remove)
            stack.callback(after_step(self._after_step).remove)
            stack.enter_context(torch_private.reporting_to(self))
            self._undo = stack.pop_all()
        return super().__enter__()

    def __exit__(self, *exc):
        self._undo.close()
        return super().__exit__(*exc)

    def _note_parameter(self, module, name, parameter):
        if parameter is not None and not self.paused:
            self.note(parameter, "parameters")

    def _before_step(self, optimizer, *_):
        for group in optimizer.param_groups:
            self.note_group(group)
        self._stepping = True

    def _after_step(self, optimizer, *_):
        self._stepping = False
        for t in tensors(list(optimizer.state.values())):
            self.note(t, "optimizer states")
