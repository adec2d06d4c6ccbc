"""A watch over operations on an emulated GPU, and the places in a script that they belong to.

No mode of PyTorch's is used, since it would change what the backward pass allocates. The emulator
reports each operation; its number goes into the allocator's own history (see trace.py). Before
PyTorch 2.9 it reports none, and the history has no room for numbers: then only the calls of modules
and the phases are places, and the number of allocations so far tells where each begins.
"""

import contextlib
import functools

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook as after_step
from torch.optim.optimizer import register_optimizer_step_pre_hook as before_step

from emulated_gpu import process
from emulated_gpu.accounting.blocks import parts_of, tensors
from emulated_gpu.accounting.torch_private import FSDP_GROUP, in_backward, lookup, wrapped
from emulated_gpu.process import address, on_gpu
from emulated_gpu.why.cost import Cost
from emulated_gpu.why.whereabouts import Whereabouts

BETWEEN = "+"  # after the number of an operation: it has ended
EXCHANGE = ("c10d", "fsdp")  # namespaces of operations on buffers for communication
IS_TOLD = hasattr(torch._C, "_cuda_setMemoryMetadata")  # of operations: from PyTorch 2.9 on


class Watch:
    """Observer of the operations on the GPU, and of the categories of tensors in its memory.

    Attributes:
        places: of each operation: (phase, module, line of the script, category of the blocks that
            it allocates).
        results: of each operation: {address: (shape, dtype)} of the tensors that it returned.
        counts: of each operation, before PyTorch 2.9: allocations and frees before it.
        labels: categories by hooks of the script: (operations so far, address, category, name).
        cost: a Cost, of the operations since its start().
        building: true until training begins.
        inputs: addresses of a batch on the host.
        weights: addresses of weights; has_changed is true once an operation has written there.
        evaluates: true where a model in evaluation mode was called last, without gradients.
    """

    def __init__(self, line):
        """Begin without operations.

        line() returns the script's running line: (file, number, and number of the line that chose
        the running code, or None), or None outside of the script.
        """
        self.line = line
        self.places = []
        self.results = []
        self.counts = []
        self.labels = []
        self.cost = Cost("cuda")
        self.building = True
        self.names = {}  # {parameter: name}
        self.inputs = set()
        self.weights = set()
        self.has_changed = self.evaluates = False
        self._stepping = False  # whether an optimizer's step() runs
        self._in_call = False  # whether a call of backward() runs
        self._nodes = torch.autograd._get_sequence_nr()  # of autograd, so far
        self._graph_at = None  # number of the first operation of a graph, while building
        self._running = False  # whether an operation runs: those within it are a part of it
        self._gathering = False  # whether FSDP2 gathers weights
        self._recording = False  # whether the allocator keeps its history
        self._whereabouts = Whereabouts()

    # Operations.

    def begins(self, func):
        """Note that an operation begins; return its number, None within another operation."""
        if self._running:
            return None
        self._running = True
        self.place()
        number = len(self.places) - 1
        _tell(str(number))
        return number

    def ends(self, number, func, args, kwargs, out):
        """Note the tensors that an operation has returned."""
        if number is None:
            return
        self._running = False
        if any(map(is_lazy, tensors((args, kwargs)))):
            return  # lazy parameters have no shape yet, and no memory
        returned = [t for t in tensors(out) if on_gpu(t)]
        self.results[number] = {address(t): (tuple(t.shape), t.dtype) for t in returned}
        if func.namespace in EXCHANGE:
            for t in (*returned, *tensors((args, kwargs))):
                self.label(t, "gathered")
        elif func is torch.ops.aten.copy_.default and self._is_input(args[1]):
            self.label(args[0], "inputs")
        # A script without an optimizer updates its weights like this: see updates.py.
        if func._schema.name.endswith("_") and isinstance(args[0], torch.Tensor):
            self.has_changed |= on_gpu(args[0]) and address(args[0]) in self.weights
        self.cost.note(self, func, args, kwargs, out)
        _tell(f"{number}{BETWEEN}")

    def place(self):
        """Note the place in the script; blocks that PyTorch allocates from here on belong to it."""
        if not self._recording and torch.cuda.is_initialized():
            self._record()
        phase = self.phase()
        if self.building and self._graph_at is None:
            if torch.autograd._get_sequence_nr() > self._nodes:
                self._graph_at = len(self.places)
        category = self._category(phase)
        self.places.append((phase, self._whereabouts.module(), self.line(), category))
        self.results.append({})
        if not IS_TOLD:
            self.counts.append(process.count_changes())
        _tell(f"{len(self.places) - 1}{BETWEEN}")

    def _record(self):
        self._recording = True
        record_history()

    def begin_training(self, in_backward):
        """End building; in a backward pass, a forward pass has come before, by no known module."""
        self.building = False
        if in_backward and self._graph_at is not None:
            for n, (_, module, line, _) in enumerate(self.places[self._graph_at :], self._graph_at):
                self.places[n] = "forward", module, line, "activations"

    def was_evaluation(self, since):
        """Call the forward passes from an operation on evaluation: no backward pass has come."""
        for n, (phase, *others) in enumerate(self.places[since:], since):
            if phase == "forward":
                self.places[n] = "evaluation", *others

    def _category(self, phase):
        """Return the category of a tensor that an operation of a phase allocates."""
        if self._gathering:
            return "gathered"
        # The backward pass builds a graph only where checkpointing computes blocks again.
        if in_backward() and torch.is_grad_enabled():
            return "recomputed"
        return "activations" if phase == "forward" else "temporaries"

    def phase(self):
        """Return the current phase: "load", "forward", "backward", "step" or "evaluation"."""
        if self.building:
            return "load"
        if self._stepping:
            return "step"
        if self._in_call or in_backward():
            return "backward"
        return "evaluation" if self.evaluates else "forward"

    def is_between_modules(self):
        """Return whether no module's forward pass is running."""
        return not self._whereabouts.running

    def _is_input(self, source):
        if source.device.type != "cpu" or self._stepping:
            return False
        # Copies to the GPU outside of modules are those of a batch.
        is_forward = self.phase() in ("forward", "evaluation")
        outside = is_forward and self._whereabouts.module() is None
        return outside or source.data_ptr() in self.inputs

    # Tensors whose category the script shows.

    def label(self, tensor, category, name=None):
        """Note the category of a tensor's memory, and the parameter that it belongs to."""
        for part in parts_of(tensor) or [tensor]:
            if on_gpu(part):
                self.labels.append((len(self.places), address(part), category, name))

    def note_group(self, group):
        """Note the parameters of a group, and their gradients."""
        for p in group["params"]:
            if is_lazy(p):
                continue
            self.label(p, "parameters", self.names.get(p))
            if p.grad is not None:
                self.label(p.grad, "gradients", self.names.get(p))

    def _before_step(self, optimizer, args, kwargs):
        """Begin a step; return its arguments, of which the only one to be called is a closure."""

        def told(argument):
            if not callable(argument):
                return argument
            return functools.partial(self._outside_step, optimizer, argument)

        self._begin_step(optimizer)
        return (*args[:1], *map(told, args[1:])), {key: told(kwargs[key]) for key in kwargs}

    def _begin_step(self, optimizer):
        for group in optimizer.param_groups:
            self.note_group(group)
        self._stepping = True
        self.place()

    def _outside_step(self, optimizer, closure):
        """Call a closure, with which step() computes the gradients itself."""
        self._stepping = False
        self.place()
        loss = closure()
        self._begin_step(optimizer)
        return loss

    def _after_step(self, optimizer, *_):
        self._stepping = False
        for p, states in optimizer.state.items():
            for t in tensors(states):
                self.label(t, "optimizer states", self.names.get(p))
        self.place()

    def _backward(self, original, *args, **kwargs):
        self._in_call = True
        self.place()
        try:
            return original(*args, **kwargs)
        finally:
            self._in_call = False
            self.place()

    def _free(self, original, *args, **kwargs):
        self.place()  # no operation runs where memory is freed, so the place is noted here
        return original(*args, **kwargs)

    def _gather(self, original, *args, **kwargs):
        self._gathering = True
        self.place()
        original(*args, **kwargs)
        self._gathering = False
        self.place()

    def _keep_whole(self, original, group, *args, **kwargs):
        """Find the gradients that FSDP2 keeps whole, where it does not reduce them yet."""
        original(group, *args, **kwargs)
        for p in group.fsdp_params:
            whole = getattr(p, "_unsharded_param", None)  # before the first forward pass, none
            for gradient in (getattr(whole, "grad", None), p.unsharded_accumulated_grad):
                if gradient is not None:
                    self.label(gradient, "gradients")

    @contextlib.contextmanager
    def at_work(self):
        """Watch the operations in this context."""
        with contextlib.ExitStack() as stack:
            if not IS_TOLD:  # else the first operation begins the history
                torch.cuda._lazy_call(self._record)  # when the script first uses the GPU
            stack.callback(before_step(self._before_step).remove)
            stack.callback(after_step(self._after_step).remove)
            stack.enter_context(self._whereabouts.update())
            # Tensor.backward() calls it, too.
            stack.enter_context(wrapped(torch.autograd, "backward", self._backward))
            stack.enter_context(wrapped(torch.optim.Optimizer, "zero_grad", self._free))
            if group := lookup(FSDP_GROUP, "gathered weights count as activations"):
                stack.enter_context(wrapped(group, "wait_for_unshard", self._gather))
                stack.enter_context(wrapped(group, "post_backward", self._keep_whole))
            stack.enter_context(process.watching(self))
            yield

    def block(self, tensor):
        """Return the key by which Cost identifies a tensor's memory: its start address."""
        return address(tensor) if tensor.layout == torch.strided else id(tensor)


def record_history():
    """Let the allocator keep its history from here on, unless it does already, for a snapshot.

    Not before the script has begun to use the GPU: it may choose the allocator's settings itself.
    """
    if not process.records_history():
        # So many, since a full history overwrites its beginning; and without stacks, since places
        # have the lines. https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
        torch.cuda.memory._record_memory_history(max_entries=100_000_000, context=None)


def _tell(text):
    """Attach a text to the events of the allocator's history from here on."""
    if IS_TOLD and torch.cuda.is_initialized():
        torch._C._cuda_setMemoryMetadata(text)
