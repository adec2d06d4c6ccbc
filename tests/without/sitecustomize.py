"""Makes Python behave as if the packages in the variable WITHOUT were not installed.

Python imports a module of this name from PYTHONPATH when it starts, in every process.
"""

import os
import sys
from importlib.machinery import PathFinder

GONE = os.environ.get("WITHOUT", "").split(",")


class Finder(PathFinder):
    """Finds modules and packages' versions, but not those of the packages that are gone."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in GONE:
            return None
        return super().find_spec(name, path, target)

    @staticmethod
    def find_distributions(*args, **options):
        found = PathFinder.find_distributions(*args, **options)
        return (d for d in found if d.metadata["Name"] not in GONE)


sys.meta_path[:] = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
