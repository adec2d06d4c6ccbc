"""What was measured before need not be measured again."""

import hashlib
import json
import os
import platform

import torch

from shared.records import scripts
from shared.records.record import ROOT, versions

ROOMS = ("memory", "images", "text", "records")  # what stages import, and what runs them


def fingerprint(name, options, task, on=None):
    """Returns a hash of what a measurement depends on: options, code, versions, machine.

    Args:
        name: of the script.
        options: its command line.
        task: what it is about, such as images.cli.TASK.
        on: list of texts that tell the machine; None for what this one calls itself.
    """
    shared = ROOT / "shared"
    code = [file for room in ROOMS for file in sorted((shared / room).glob("*.py"))]
    files = [scripts.get(name).path, *sorted(shared.glob("*.py")), *code]
    machine = on or [platform.node(), os.cpu_count(), torch.cuda.device_count()]
    return digest(files, json.dumps([options, machine, versions(task, name)]).encode())


def digest(files, *parts):
    """Returns a hash of bytes, and of what is in files."""
    return hashlib.sha256(b"".join([*parts, *(f.read_bytes() for f in files)])).hexdigest()[:16]
