"""Comparisons of figures that hold only under the versions that made them."""

import importlib.metadata

from packaging.version import Version

from shared.run.record import imported

# The packages that determine which tensors exist, and when; so do others that a script imports.
MATTER = ("torch", "torchvision", "transformers", "lightning")


def installed(name):
    """Return the version of an installed package, without a build's "+cu130"."""
    return Version(Version(importlib.metadata.version(name)).public)


def made_here(record):
    """Return whether a stored record was made with the installed versions.

    The versions of a record that does not name all packages that its script imports are unknown.
    """
    of_script = imported(record.get("script"))
    names = {*MATTER, *of_script}
    stored = {name: text for name, text in record["versions"].items() if name in names}
    if {*of_script} - {*stored}:
        return False
    return all(installed(name) == Version(Version(text).public) for name, text in stored.items())
