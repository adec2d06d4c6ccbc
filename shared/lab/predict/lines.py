"""The running lines of a script of this repository."""

import ast
import functools
import inspect
import sys
import threading

# Functions that choose what runs later: an optimizer, checkpointing, sharding.
CHOOSING = ("build", "parallelize")


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
