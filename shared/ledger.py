"""Who holds the memory: the birth and death of every tensor storage, by category.

PyTorch counts memory on CUDA devices; for a CPU it has no such counter. The resident set of the process is no
substitute (it holds libraries and what the C allocator keeps), nor is the profiler with several processes. So the
ledger listens to every operation, and writes down each new storage and the moment it is freed. What a kernel
allocates for itself and frees before it returns does not pass through here: under 1 % on models of 40 MB and more.
"""

import collections
import contextlib
import weakref

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode  # underscored, but the documented way to see every operation

from shared import torch_hooks

# A storage keeps one of these once it has it; the other labels are guesses from the moment of birth.
KNOWN = ("parameters", "gradients", "optimizer states", "inputs")
CATEGORIES = (*KNOWN, "activations", "recomputed", "gathered", "temporaries")


class Block:
    """A storage: its size in bytes, the type of its device ("cpu", "cuda"), its category, and where it was born: in what
    phase ("load", "forward", "backward", "step"), module, and stream of the device.
    """

    __slots__ = ("nbytes", "device", "label", "phase", "module", "stream")

    def __init__(self, nbytes, device, label, phase=None, module=None, stream=0):
        self.nbytes, self.device, self.label = nbytes, device, label
        self.phase, self.module, self.stream = phase, module, stream


def tensors(x):
    """Yields the tensors inside nested lists, tuples and dicts."""
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from tensors(y)
    elif isinstance(x, dict):
        yield from tensors(list(x.values()))


class Ledger(TorchDispatchMode):
    """Counts tensor memory while it is active; may be entered as often as wanted.

    Storages born outside are counted from the first operation that returns them, deaths always. What a storage is
    for is often known only later (a gradient, when the optimizer steps), and then holds from its birth: so the
    breakdown is computed from the log, afterwards.
    """

    def __init__(self, place=lambda: (None, 0)):
        """Args: place, a function that tells the module and the stream at work, for those who want to know."""
        super().__init__()
        self.place = place
        self.events = []  # (block, bytes), negative when freed
        self.phases = []  # for each event, what the training was doing
        self._live = {}  # storage's address -> block
        self._paused = False
        self._building = True  # until the first forward pass, nothing is an activation
        self._stepping = False

    def peak(self, device, since=0, until=None):
        """Replays the log.

        Args:
            device: type of the device, "cpu" or "cuda".
            since, until: the part of `events` to search; what was alive before counts too.

        Returns:
            the most bytes that were alive at once, and the bytes of each category at that moment.
        """
        return self.summit(device, since, until)[:2]

    def summit(self, device, since=0, until=None):
        """Returns what peak() does, and the block whose birth made it the peak; None if it is as old as `since`."""
        total, now = 0, collections.Counter()
        best, at_best, last = 0, {}, None
        for i, (block, change) in enumerate(self.events[:until]):
            if block.device == device:
                total += change
                now[block.label] += change
            if i >= since - 1 and total > best:
                best, at_best, last = total, dict(now), block if i >= since else None
        return best, {label: at_best[label] for label in CATEGORIES if at_best.get(label)}, last

    def training(self):
        """Says that the model is built: from now on a new storage in the forward pass is an activation."""
        self._building = False

    def note(self, tensor, label=None):
        """Books a tensor's storage, if it is new, and its category, if that is known."""
        tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, this process' shard
        storage = tensor.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()  # the address: unique among the living
        block = self._live.get(key)
        if block is None:
            self._born(key, nbytes, tensor.device.type, label or self._guess())
            weakref.finalize(storage, self._died, key).atexit = False
            return
        if block.nbytes != nbytes:
            self.resized(storage)
            block = self._live[key]
        if label and block.label not in KNOWN:
            block.label = label

    def _born(self, key, nbytes, device, label):
        self._live[key] = block = Block(nbytes, device, label, self.phase(), *self.place())
        self._log(block, nbytes)

    def _died(self, key):
        block = self._live.pop(key, None)
        if block:
            self._log(block, -block.nbytes)

    def _log(self, block, change):
        self.events.append((block, change))
        self.phases.append(self.phase())

    def phase(self):
        """Returns what the training is doing: "load", "forward", "backward" or "step"."""
        if self._building:
            return "load"
        if self._stepping:
            return "step"
        return "backward" if torch_hooks.in_backward() else "forward"

    def _guess(self):
        if self.phase() in ("load", "step"):
            return "temporaries"
        if self.phase() == "forward":
            return "activations"
        # Gradients are not computed with gradients enabled; checkpointing runs the forward pass again, and is.
        return "recomputed" if torch.is_grad_enabled() else "temporaries"

    @contextlib.contextmanager
    def pause(self):
        """Nothing is booked while the context is active."""
        paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = paused

    def resized(self, storage):
        """Books that a storage has another size than before."""
        block = self._live.get(storage._cdata)
        if block:
            self._died(storage._cdata)
            self._born(storage._cdata, storage.nbytes(), block.device, block.label)

    def note_file(self, tensor):
        """Keeps a tensor that is a mapped file out of the books: the system reads and drops its pages as it likes."""
        storage = tensor.untyped_storage()
        self._live[storage._cdata] = Block(storage.nbytes(), "file", "temporaries")
        weakref.finalize(storage, self._live.pop, storage._cdata, None).atexit = False

    def note_group(self, group):
        """Books what an optimizer was given: its parameters, and their gradients if there are any."""
        for p in group["params"]:
            self.note(p, "parameters")
            if p.grad is not None:
                self.note(p.grad, "gradients")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(t.__name__ == "DTensor" for t in types):
            return NotImplemented  # comes back as operations on the shards
        kwargs = kwargs or {}
        out = torch_hooks.on_copies(func, args, kwargs) if func.namespace == "c10d" else func(*args, **kwargs)
        if self._paused:
            return out
        label = None
        if func is torch.ops.aten._to_copy.default:  # a batch on another device or in another precision is still the batch
            source = self._live.get(args[0].untyped_storage()._cdata)
            label = "inputs" if source and source.label == "inputs" else None
        for t in tensors(out):
            self.note(t, label)
        if func.namespace in ("c10d", "fsdp"):  # buffers for what the processes send each other
            for t in tensors((args, kwargs, out)):
                if t.untyped_storage()._cdata in self._live:
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
            stack.enter_context(torch_hooks.reporting_to(self))
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
