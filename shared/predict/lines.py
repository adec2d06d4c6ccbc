"""Which lines of a script are at work, at any moment of its training."""

import ast
import functools
import inspect
import sys
import threading

# These functions choose what works later on: an optimizer, checkpointing, sharding.
CHOOSING = ("build", "parallelize")


class Lines:
    """Finds the lines of a script that are at work.

    One is the line of train_step() that is running; during the backward pass, the one that started
    it. Another may be the line of build() or parallelize() which chose what is running there. That
    is told from where the code that runs stands: under `optimizer.step()` runs code of the module
    that defines torch.optim.SGD, and this name is in build().
    """

    def __init__(self, script):
        """Reads a script, a module. The thread that makes this object is the one that trains."""
        self._file, self._thread = script.__file__, threading.get_ident()
        self._chosen = _chosen(script)  # name of a module or a package -> line
        self._of = functools.cache(self._line)

    def __call__(self):
        """Returns the numbers of the line at work and of the line that chose it, or None."""
        chosen = None
        # A simulated GPU's backward pass runs in a thread of its own, as a real one's does, while
        # the script's thread waits.
        for frame in (sys._getframe(1), sys._current_frames()[self._thread]):
            while frame:
                if frame.f_code.co_filename == self._file:
                    return frame.f_lineno, chosen
                chosen = chosen or self._of(frame.f_globals.get("__name__"))
                frame = frame.f_back
        return None, chosen

    def _line(self, module):
        found = (line for name, line in self._chosen.items() if f"{module}.".startswith(f"{name}."))
        return next(found, None)


def _chosen(script):
    """Returns {name of the module that defines what a line of the script names: the line}.

    What is defined in a private module belongs to the public package around it. Large packages,
    such as torch.utils, tell nothing. Of several lines the last one counts, where a function is
    called and its arguments are made already.
    """
    found = {}
    for function in filter(None, (getattr(script, name, None) for name in CHOOSING)):
        lines, first = inspect.getsourcelines(inspect.unwrap(function))
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, (ast.Name, ast.Attribute)):
                module = getattr(_named(node, script), "__module__", None) or ""
                public = module.partition("._")[0]
                if public.count(".") >= 2 and not public.startswith("shared."):
                    found[public] = max(node.lineno + first - 1, found.get(public, 0))
    return found


def _named(node, script):
    """Returns what a name such as torch.optim.SGD means in a script, None if it is a variable."""
    if isinstance(node, ast.Name):
        return getattr(script, node.id, None)
    return getattr(_named(node.value, script), node.attr, None) if hasattr(node, "attr") else None
