"""Figures are compared under the versions that made them; what must hold anywhere, always."""

import importlib.metadata

import pytest
from packaging.version import Version

from shared.records.record import imported

# The packages that decide which tensors there are, and when.
MATTER = ("torch", "torchvision", "transformers", "lightning", "torchao", "peft")
# Up to PyTorch 2.14, cuBLAS keeps its workspace, and up to 2.13 cuBLASLt, too: one of the forward
# pass and one of the backward pass. On an A100 these are 8.1 and 1 MiB; see predict/workspaces.py.
KEPT_GB = 2 * (8_519_680 + 2**20) / 1e9


def installed(name):
    """Returns the version of an installed package, without a build's "+cu130"."""
    return Version(Version(importlib.metadata.version(name)).public)


def made_here(record):
    """Tells whether a stored record was made with the versions that are installed.

    One that does not name all packages that its script imports was made with nobody knows which.
    """
    stored = {name: text for name, text in record["versions"].items() if name in MATTER}
    if {*imported(record.get("script"))} & {*MATTER} - {*stored}:
        return False
    return all(installed(name) == Version(Version(text).public) for name, text in stored.items())


def only_here(record):
    """Skips the rest of a test, and says why, unless a stored record's versions are installed."""
    if not made_here(record):
        told = ", ".join(f"{k} {v}" for k, v in record["versions"].items() if k in MATTER)
        pytest.skip(f"figures of {told} are compared under these versions only")
