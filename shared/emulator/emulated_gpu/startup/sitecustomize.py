"""The first code that Python runs in a process with an emulated GPU: it waits for PyTorch.

launch.py puts this folder into PYTHONPATH. The user's own sitecustomize, if there is one, still
runs. See https://docs.python.org/3/library/site.html#module-sitecustomize.
"""

import importlib.machinery
import importlib.util
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))


def load_package():
    """Load the emulated_gpu of this folder, even if sys.path has another in front.

    The program may run in an environment without the package, or with another version of it, whose
    Python code does not fit the C code that launch.py has preloaded.
    """
    folder = os.path.dirname(HERE)
    file = os.path.join(folder, "__init__.py")
    options = {"submodule_search_locations": [folder]}
    spec = importlib.util.spec_from_file_location("emulated_gpu", file, **options)
    package = importlib.util.module_from_spec(spec)
    sys.modules["emulated_gpu"] = package
    spec.loader.exec_module(package)


def run_the_users_sitecustomize():
    """Run the sitecustomize that Python would have found without this folder."""
    path = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def prepare_torch(torch):
    """Prepare PyTorch, which the program has just imported."""
    from emulated_gpu.inside import prepare

    prepare(torch)


if "EMULATED_DEVICES" in os.environ:
    # PyTorch's warning where NumPy is not installed, which it does not need.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    load_package()
run_the_users_sitecustomize()
if "EMULATED_DEVICES" in os.environ:
    from emulated_gpu.imports import once_imported

    once_imported("torch", prepare_torch)
    if "EMULATED_STAND_INS" in os.environ:  # a program of somebody, as launch.run() starts it
        from emulated_gpu import stand_ins

        stand_ins.install()
