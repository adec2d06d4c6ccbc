"""Changes to modules that a program has not imported yet.

An emulated process changes PyTorch, and a predictor changes packages that use it. Importing these
packages first, only to change them, would take seconds in programs that never use them.
"""

import sys


class _Finder:
    """A finder that finds one module, and calls change(module) when it has been imported.

    It stays until then: importlib.util.find_spec(), which packages call to ask whether a module is
    installed, searches and imports nothing.
    """

    def __init__(self, name, change):
        self.name, self.change = name, change

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self not in sys.meta_path:
            return None
        # The finders behind this one, so that another change of this module is found.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)  # some old finders have none
            if spec := find and find(name, path, target):
                break
        else:
            return None
        if spec.loader:
            original = spec.loader.exec_module

            def exec_module(module):
                original(module)
                if self in sys.meta_path:  # once, also where two specs are used
                    sys.meta_path.remove(self)
                    self.change(module)

            # Of this loader alone: each module from a file has one of its own.
            spec.loader.exec_module = exec_module
        return spec


def once_imported(name, change):
    """Call change(module) when the module is imported, or at once if it has been.

    Args:
        name: full name of the module, such as "torchvision.datasets".
        change: function of the module. Of several for one module, the first one is called first.
    """
    if name in sys.modules:
        change(sys.modules[name])
    else:
        # Before Python's finders, since the first one that knows a module ends the search.
        sys.meta_path.insert(0, _Finder(name, change))


def replace_everywhere(name, original, replacement):
    """Replace a function in all modules, since some have imported it by name."""
    for module in [*sys.modules.values()]:
        if getattr(module, "__dict__", {}).get(name) is original:  # None blocks an import
            setattr(module, name, replacement)
