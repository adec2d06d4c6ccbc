"""Tracker of the running module of a model."""

import bisect
import contextlib
import re
import weakref

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


def node_at_work():
    """Return the number of the autograd node that is running, None outside of a backward pass.

    Without this private name of PyTorch, the module of a gradient would not be known.
    """
    node = torch._C._current_autograd_node()
    return node._sequence_nr() if node else None


def plain(name):
    """Return the name of a module or a parameter as in the model's state dict."""
    # Fabric's wrapper holds the model as _forward_module, and DDP's as module.
    return re.sub(r"^(_forward_module(\.|$))?(module(\.|$))?", "", name)


class Whereabouts:
    """Tracker of the running module of a model, one update at a time.

    torch.utils.module_tracker does the same with hooks on tensors, but these keep recomputed
    activations alive for too long. Here, a node of the backward pass belongs to the module that was
    running when the forward pass created it.
    """

    def __init__(self):
        # Weak, so that a model which the script lets go does not stay in memory for its name.
        self._names = weakref.WeakKeyDictionary()  # {module: its name}
        self.running = []  # names of the modules whose forward pass is running, the innermost last
        # _makers[i] created the nodes from number _nodes[i] on.
        self._nodes = []
        self._makers = []

    @contextlib.contextmanager
    def update(self):
        """Track the modules during an update."""
        self.running.clear()
        self._nodes.clear()
        self._makers.clear()
        with (
            register_module_forward_pre_hook(self._entered),
            # Also after an exception: checkpointing raises one to end a recomputation early.
            # https://docs.pytorch.org/docs/stable/checkpoint.html
            register_module_forward_hook(self._left, always_call=True),
        ):
            yield

    def module(self):
        """Return the name of the running module: "" for the model, None if none is running."""
        if self.running:
            return self.running[-1]
        node = node_at_work()
        i = bisect.bisect_right(self._nodes, node) if node is not None else 0
        return self._makers[i - 1] if i else None

    def _entered(self, module, inputs):
        if torch.compiler.is_compiling():  # else torch.compile() would compile less
            return
        if module not in self._names:
            self._names.update({child: plain(name) for name, child in module.named_modules()})
        self.running.append(self._names[module])
        self._changed()

    def _left(self, module, inputs, output):
        if torch.compiler.is_compiling():
            return
        if self.running:  # else it was entered before this tracker began
            self.running.pop()
        self._changed()

    def _changed(self):
        # Nodes created in the backward pass belong to recomputation, and do not count.
        if node_at_work() is None:
            # The number that the next node will get: none may be created before the next call.
            self._nodes.append(torch.autograd._get_sequence_nr())
            self._makers.append(self.running[-1] if self.running else None)
