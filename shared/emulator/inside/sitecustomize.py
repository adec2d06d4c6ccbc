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


class Torch:
    """Finder of the module torch: as soon as it has been imported, what is here takes effect."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found and found.loader:
            original = found.loader.exec_module

            def exec_module(module):
                original(module)
                from emulated_gpu import prepare

                prepare()

            found.loader.exec_module = exec_module
        return found


run_the_users_own()
if "EMULATED_DEVICES" in os.environ:
    sys.meta_path.insert(0, Torch())
