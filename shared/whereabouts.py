"""Which module is at work, in the forward and in the backward pass."""

import bisect
import contextlib

from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from shared import torch_hooks


class Whereabouts:
    """Follows the modules of a model while the context is active, one update at a time.

    torch.utils.module_tracker does the same with hooks on tensors, which keep recomputed activations alive that would
    otherwise be gone. This one only compares numbers: a node of the backward pass belongs to the module that was at work
    when the forward pass made it.
    """

    def __init__(self):
        self._names = {}  # module -> its name
        self._running = []  # names of the modules whose forward pass is running, the innermost last
        self._nodes, self._makers = [], []  # from which node on which module made them

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
        """Returns the name of the module at work, as in the model's state dict; "" for the model, None for no module."""
        if self._running:
            return self._running[-1]
        node = torch_hooks.node_at_work()
        i = bisect.bisect_right(self._nodes, node) if node is not None else 0
        return self._makers[i - 1] if i else None

    def _entered(self, module, inputs):
        if module not in self._names:
            self._names.update((child, name.removeprefix("_forward_module").removeprefix(".")) for name, child in module.named_modules())
        self._running.append(self._names[module])
        self._changed()

    def _left(self, module, inputs, output):
        self._running.pop()
        self._changed()

    def _changed(self):
        if torch_hooks.node_at_work() is None:  # what is recomputed makes nodes of its own
            self._nodes.append(torch_hooks.next_node())
            self._makers.append(self._running[-1] if self._running else None)
