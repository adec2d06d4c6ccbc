"""What Python runs first where a GPU is emulated: it waits for PyTorch, and prepares it.

launch.py puts this folder into PYTHONPATH. A sitecustomize of the user's own still runs, first.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run_the_users_own():
    path = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if found and found.loader:
        found.loader.exec_module(importlib.util.module_from_spec(found))


class Before:
    """Finder of a module: as soon as it has been imported, prepare(module) is called."""

    def __init__(self, name, prepare):
        self.name, self.prepare = name, prepare

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found and found.loader:
            original = found.loader.exec_module

            def exec_module(module):
                original(module)
                self.prepare(module)

            found.loader.exec_module = exec_module
        return found


def once_imported(name, prepare):
    """Call prepare(module) as soon as somebody has imported a module, or now."""
    if name in sys.modules:
        prepare(sys.modules[name])
    else:
        sys.meta_path.insert(0, Before(name, prepare))


def prepare_torch(torch):
    from emulated_gpu.inside import prepare

    prepare()


run_the_users_own()
if "EMULATED_DEVICES" in os.environ:
    once_imported("torch", prepare_torch)
