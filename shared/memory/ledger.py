"""Who holds the memory: when every tensor storage is allocated and freed, by category.

PyTorch counts memory on CUDA devices, but not on a CPU. The resident set of the process is no
substitute, because it contains libraries and what the C allocator keeps; nor is the profiler, with
several processes. So the ledger listens to every operation, and logs each new storage and the
moment when it is freed. It does not see what a kernel allocates for itself and frees before it
returns: on a CPU, less than 1 % on models of 40 MB and more.
"""

import contextlib
import weakref

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

# The module has an underscore, but this is the documented way to see every operation.
from torch.utils._python_dispatch import TorchDispatchMode

from shared.memory import torch_private
from shared.memory.blocks import KNOWN, Block, summit, tensors


class Ledger(TorchDispatchMode):
    """Counts tensor memory while it is active; it can be entered several times.

    A storage that was allocated while the ledger was not active counts from the first operation
    that returns it. Releases always count. The category of a storage is often known only later (of
    a gradient, when the optimizer steps), and then applies from its allocation on. So the breakdown
    is computed afterwards, from the log.
    """

    def __init__(self, place=lambda: (None, 0), hidden=None, seen=None, watch=None):
        """Begins with an empty log.

        Args:
            place: function that returns the module at work and the stream in use, as in Block.
            hidden: function of an operation, its arguments and its results, which returns what it
                allocates for itself, as predict.workspaces.Workspaces.of() does.
            seen: function of this ledger, an operation, its arguments and its results, as
                predict.cost.Cost.note(), which is called when they have been noted.
            watch: function that returns what to keep of each event besides.
        """
        super().__init__()
        self.place, self.hidden, self.seen, self.watch = place, hidden, seen, watch
        self.events = []  # (block, bytes), negative when freed
        self.phases = []  # for each event, what the training was doing
        self.watched = []  # for each event, what watch() returned
        # id of a storage -> block. PyTorch keeps its Python object as long as the storage.
        self._live = {}
        self._paused = False
        self._building = True  # until the first forward pass, nothing is an activation
        self._stepping = False
        self._gathering = False

    def peak(self, device, since=0, until=None):
        """Finds a peak in the log; returns the first two things that summit() does."""
        return summit(self.events, device, since, until)[:2]

    def training(self):
        """Notes that the model is built.

        From now on, a new storage in the forward pass is an activation.
        """
        self._building = False

    def note(self, tensor, label=None):
        """Logs a tensor's storage, if it is new, and notes its category, if that is known."""
        if hasattr(tensor, "__tensor_flatten__"):
            # It consists of other tensors and has no memory of its own, like a DTensor, of which
            # this process has a shard, or a quantized tensor. Its storage only pretends.
            for part in tensors([getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]):
                self.note(part, label)
            return
        storage = tensor.untyped_storage()
        key, nbytes = id(storage), storage.nbytes()
        block = self._live.get(key)
        if block is None:
            block = self._born(key, nbytes, tensor.device.type, label or self._guess())
            block.shape, block.dtype = tuple(tensor.shape), tensor.dtype
            weakref.finalize(storage, self._died, key).atexit = False
            return
        if block.nbytes != nbytes:
            self.resized(storage)
            block = self._live[key]
        if label and block.label not in KNOWN:
            block.label = label

    def name(self, tensor, name):
        """Notes to which parameter the storages of a tensor belong."""
        if hasattr(tensor, "__tensor_flatten__"):
            for part in tensors([getattr(tensor, each) for each in tensor.__tensor_flatten__()[0]]):
                self.name(part, name)
        elif block := self._live.get(id(tensor.untyped_storage())):
            block.name = name

    def block(self, tensor):
        """Returns a name of the storage of a tensor, which no other storage gets."""
        storage = id(tensor.untyped_storage())
        return id(self._live[storage]) if storage in self._live else storage

    def _born(self, key, nbytes, device, label):
        self._live[key] = block = Block(nbytes, device, label, self.phase(), *self.place())
        self._log(block, nbytes)
        return block

    def _died(self, key):
        block = self._live.pop(key, None)
        if block:
            self._log(block, -block.nbytes)

    def _log(self, block, change):
        self.events.append((block, change))
        self.phases.append(self.phase())
        if self.watch:
            self.watched.append(self.watch())

    def phase(self):
        """Returns what the training is doing: "load", "forward", "backward" or "step"."""
        if self._building:
            return "load"
        if self._stepping:
            return "step"
        return "backward" if torch_private.in_backward() else "forward"

    def _guess(self):
        if self._gathering:
            return "gathered"
        if self.phase() in ("load", "step"):
            return "temporaries"
        if self.phase() == "forward":
            return "activations"
        # The backward pass runs with gradients disabled, except where activation checkpointing
        # repeats the forward pass.
        return "recomputed" if torch.is_grad_enabled() else "temporaries"

    def _note_hidden(self, device, at_once, kept):
        """Logs what an operation allocates for itself; the arguments as Workspaces.of() returns."""
        for sizes in (*at_once, kept):
            blocks = [Block(n, device, "workspaces", self.phase(), *self.place()) for n in sizes]
            for block in blocks:
                self._log(block, block.nbytes)
            for block in blocks if sizes is not kept else ():
                self._log(block, -block.nbytes)

    @contextlib.contextmanager
    def pause(self):
        """Logs nothing while the context is active."""
        paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = paused

    @contextlib.contextmanager
    def gathering(self):
        """Notes that new storages are weights put together from shards while it is active."""
        gathering, self._gathering = self._gathering, True
        try:
            yield
        finally:
            self._gathering = gathering

    def resized(self, storage):
        """Logs that the size of a storage has changed."""
        block = self._live.get(id(storage))
        if block:
            self._died(id(storage))
            new = self._born(id(storage), storage.nbytes(), block.device, block.label)
            new.shape, new.dtype = block.shape, block.dtype

    def note_file(self, tensor):
        """Leaves out a tensor that is a memory-mapped file.

        The operating system reads the file's pages when they are needed, and can drop them.
        """
        storage = tensor.untyped_storage()
        self._live[id(storage)] = Block(storage.nbytes(), "file", "temporaries")
        weakref.finalize(storage, self._live.pop, id(storage), None).atexit = False

    def note_group(self, group):
        """Notes what an optimizer was given: parameters, and their gradients if there are any."""
        for p in group["params"]:
            self.note(p, "parameters")
            if p.grad is not None:
                self.note(p.grad, "gradients")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            # Two thirds of all calls in a simulation: PyTorch asks on what device a fake tensor
            # pretends to be. It knows itself; asking the modes below would take much longer.
            return args[0].device
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented  # such a tensor then calls operations on its parts
        kwargs = kwargs or {}
        if torch_private.exchanges(func):
            out = torch_private.on_copies(func, args, kwargs)
        else:
            out = func(*args, **kwargs)
        if self._paused:
            return out
        label = None
        if func is torch.ops.aten._to_copy.default:
            # A batch that is moved to another device or converted is still the batch.
            source = self._live.get(id(args[0].untyped_storage()))
            label = "inputs" if source and source.label == "inputs" else None
        for t in tensors(out):
            self.note(t, label)
        if self.seen:
            self.seen(self, func, args, kwargs, out)
        if self.hidden:
            at_once, kept = self.hidden(func, args, out)
            if at_once or kept:
                self._note_hidden(args[0].device.type, at_once, kept)
        if func.namespace in ("c10d", "fsdp"):  # buffers for what the processes send each other
            for t in tensors((args, kwargs, out)):
                if id(t.untyped_storage()) in self._live:
                    self.note(t, "gathered")
        return out

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for hook in (
                register_module_parameter_registration_hook(self._note_parameter),
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ):
                stack.callback(hook.remove)
            stack.enter_context(torch_private.reporting_to(self))
            self._undo = stack.pop_all()
        return super().__enter__()

    def __exit__(self, *exc):
        self._undo.close()
        return super().__exit__(*exc)

    def _note_parameter(self, module, name, parameter):
        if parameter is not None and not self._paused:
            self.note(parameter, "parameters")

    def _before_step(self, optimizer, *_):
        for group in optimizer.param_groups:
            self.note_group(group)
        self._stepping = True

    def _after_step(self, optimizer, *_):
        self._stepping = False
        for state in optimizer.state.values():
            for t in tensors(state):
                self.note(t, "optimizer states")
