"""What a measurement depends on, as a hash: with the same hash, nothing is measured again."""

import contextlib
import hashlib
import json
import os
import platform
import subprocess
from pathlib import Path

import torch

from shared.common.files import data_files, stamps
from shared.images.models import TINY_WEIGHTS
from shared.records import scripts
from shared.records.machine import versions
from shared.records.scripts import ROOT


def fingerprint(name, options, task, on=None):
    """Returns a hash of what a measurement depends on: options, code, weights, versions, machine.

    Args:
        name: of the script.
        options: its command line.
        task: what it is about, a common.task.Task.
        on: list of texts that tell the machine; None for what this one calls itself.
    """
    shared = ROOT / "shared"
    rooms = ("common", "memory", "images", "text", "causal")
    code = [file for room in rooms for file in sorted((shared / room).glob("*.py"))]
    records = [shared / "records" / f"{file}.py" for file in ("machine", "record", "running")]
    files = [scripts.get(name).path, shared / "metrics.py", *records, *code, TINY_WEIGHTS]
    # Each of these may be a folder, a file, or just a name.
    data, model = (options[options.index(option) + 1] for option in ("--data", "--model"))
    inputs = stamps([*data_files(data), *Path(model).glob("*")])
    parts = [json.dumps([options, on or _machine(), versions(task), inputs]).encode()]
    return digest(files, *parts)


def digest(files, *parts):
    """Returns a hash of bytes, and of what is in files."""
    return hashlib.sha256(b"".join([*parts, *(f.read_bytes() for f in files)])).hexdigest()[:16]


def _machine():
    found = [platform.node(), os.cpu_count()]
    if torch.cuda.is_available():
        # The driver is asked, because PyTorch would allocate memory on the GPU to find its name.
        with contextlib.suppress(OSError):  # some containers come without nvidia-smi
            asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
            found.append(asked.stdout)
    return found
