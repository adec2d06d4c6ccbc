"""Trackers of the running module and the running lines of a script."""

import ast
import bisect
import contextlib
import functools
import inspect
import re
import sys
import threading
import weakref

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

# Functions that choose what runs later: an optimizer, checkpointing, sharding.
CHOOSING = ("build", "parallelize")


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


class Lines:
    """Finder of the running lines of a script (a module), in the thread that creates this object.

    The first is the running line of train_step(); during the backward pass, the line that started
    it. The second is the line of build() or parallelize() that chose the running code, if any. It
    is found on the call stack: below `optimizer.step()` runs code of the module that defines
    torch.optim.SGD, a name that build() uses.
    """

    def __init__(self, script):
        self._file = script.__file__
        self._thread = threading.get_ident()
        self._chosen = _chosen(script)  # {name of a module or a package: line}
        # Each operation asks for each frame of the stack.
        self._of = functools.cache(self._line)

    def __call__(self):
        """Return the numbers of the running line and of the line that chose it, None if unknown."""
        chosen = None
        # A backward pass may run in a thread of its own, as on a real GPU, while the script's
        # thread waits.
        for frame in (sys._getframe(1), sys._current_frames()[self._thread]):
            while frame:
                if frame.f_code.co_filename == self._file:
                    return frame.f_lineno, chosen
                chosen = chosen or self._of(frame.f_globals.get("__name__"))
                frame = frame.f_back
        return None, chosen

    def _line(self, module):
        for name, line in self._chosen.items():
            if f"{module}.".startswith(f"{name}."):  # the module, or one in the package
                return line
        return None


def _chosen(script):
    """Return {module: line of the script that names a function or class defined in it}.

    A private module stands for the public package around it. Large packages, such as torch.utils,
    are too broad and left out. Of several lines the last one counts, where a function is called and
    its arguments exist already.
    """
    lines_of = {}
    functions = [getattr(script, name, None) for name in CHOOSING]
    for function in filter(None, functions):
        lines, first = inspect.getsourcelines(inspect.unwrap(function))
        for node in ast.walk(ast.parse("".join(lines))):
            if not isinstance(node, (ast.Name, ast.Attribute)):
                continue
            module = getattr(_meaning(node, script), "__module__", None) or ""
            public = module.partition("._")[0]
            if public.count(".") >= 2 and not public.startswith("shared."):
                lines_of[public] = max(node.lineno + first - 1, lines_of.get(public, 0))
    return lines_of


def _meaning(node, script):
    """Return the object of a name such as torch.optim.SGD in a script, None for a variable."""
    if isinstance(node, ast.Name):
        return getattr(script, node.id, None)
    if isinstance(node, ast.Attribute):
        return getattr(_meaning(node.value, script), node.attr, None)
    return None
