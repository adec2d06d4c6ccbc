"""Which module is at work, in the forward and in the backward pass."""

import bisect
import contextlib
import re

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


def node_at_work():
    """Returns the number of the node whose backward is running, None outside of a backward pass.

    Without this private name, it would not be known for which module a gradient is computed. The
    number of the next node, torch.autograd._get_sequence_nr(), increases in the forward pass.
    """
    node = torch._C._current_autograd_node()
    return node._sequence_nr() if node else None


def plain(name):
    """Returns the name of a module or a parameter as in the model's state dict."""
    # Fabric's wrapper holds the model as _forward_module, and DDP's as module.
    return re.sub(r"^(_forward_module(\.|$))?(module(\.|$))?", "", name)


class Whereabouts:
    """Follows the modules of a model while the context is active, one update at a time.

    torch.utils.module_tracker does the same with hooks on tensors, but these keep recomputed
    activations alive for too long. This class only compares numbers: a node of the backward pass
    belongs to the module that was at work when the forward pass made it.
    """

    def __init__(self):
        self._names = {}  # module -> its name
        self._running = []  # names of the modules whose forward pass is running, the innermost last
        # _makers[i] has made the nodes from number _nodes[i] on.
        self._nodes, self._makers = [], []

    def __enter__(self):
        self._nodes.clear()
        self._makers.clear()
        with contextlib.ExitStack() as stack:
            stack.callback(register_module_forward_pre_hook(self._entered).remove)
            stack.callback(register_module_forward_hook(self._left, always_call=True).remove)
            self._undo = stack.pop_all()
        return self

    def __exit__(self, *exc):
        self._undo.close()

    def module(self):
        """Returns the name of the module at work, as in the model's state dict.

        It is "" for the model itself, None if no module is at work.
        """
        if self._running:
            return self._running[-1]
        node = node_at_work()
        i = bisect.bisect_right(self._nodes, node) if node is not None else 0
        return self._makers[i - 1] if i else None

    def _entered(self, module, inputs):
        if module not in self._names:
            for name, child in module.named_modules():
                self._names[child] = plain(name)
        self._running.append(self._names[module])
        self._changed()

    def _left(self, module, inputs, output):
        self._running.pop()
        self._changed()

    def _changed(self):
        # Nodes that are made in the backward pass belong to recomputation, and do not count.
        if node_at_work() is None:
            self._nodes.append(torch.autograd._get_sequence_nr())
            self._makers.append(self._running[-1] if self._running else None)
