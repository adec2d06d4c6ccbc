"""Which packages are missing, and what each is for, as requirements.txt says.

This module needs none of them.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements.txt"
# What calibrating imports. Without any other one, the scripts that need it are left out.
NEEDED = ("torch", "torchvision", "lightning", "torchmetrics", "packaging", "safetensors")
NEEDED += ("numpy", "pillow", "tqdm", "psutil", "filelock")


def listed():
    """Returns the packages in requirements.txt, {name: what it is for}."""
    lines = REQUIREMENTS.read_text().splitlines()
    found = (re.match(r"([A-Za-z][\w-]*)[^#]*#\s*(.*)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def missing():
    """Returns those of listed() that are not installed, {name: what it is for}."""
    return {name: why for name, why in listed().items() if not _there(name)}


def _there(name):
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def needed_or_exit():
    """Ends this process with one line and code 2 if a package is missing that all of it needs."""
    gone = [name for name in NEEDED if not _there(name)]
    if gone:
        names = ", ".join(gone)
        print(
            f"python -m shared.evidence.calibrate: {names}: needed and not installed: "
            f"pip install {' '.join(gone)}",
            file=sys.stderr,
        )
        sys.exit(2)


def lines():
    """Returns a line for each missing package: what it is for."""
    return [f"- not installed: {name}, for: {why}" for name, why in missing().items()]
