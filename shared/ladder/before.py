"""What was measured before need not be measured again."""

import hashlib
import json
import os
import platform

import torch

from shared.records import scripts
from shared.records.record import ROOT, versions

ROOMS = ("memory", "images", "text", "records")  # what stages import, and what runs them


def fingerprint(name, options, task):
    """Returns a hash of what a measurement depends on: options, code, versions, machine."""
    shared = ROOT / "shared"
    code = [file for room in ROOMS for file in sorted((shared / room).glob("*.py"))]
    files = [scripts.get(name).path, *sorted(shared.glob("*.py")), *code]
    machine = [platform.node(), os.cpu_count(), torch.cuda.device_count()]
    told = json.dumps([options, machine, versions(task, name)]).encode()
    return hashlib.sha256(b"".join([told, *(f.read_bytes() for f in files)])).hexdigest()[:16]
