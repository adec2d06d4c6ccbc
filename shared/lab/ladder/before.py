"""Fingerprints of measurements, by which the ladder knows what it need not measure again."""

import hashlib
import json
import os
import platform

import torch

from emulated_gpu.launch import is_emulated
from shared.lab.records import scripts
from shared.record import ROOT, device_name, versions

FOLDERS = ("memory", "images", "text", "records")  # what stages import, and what runs them


def fingerprint(name, options, task):
    """Return a hash of all that a measurement depends on: options, code, versions, machine."""
    shared = ROOT / "shared"
    folders = [*FOLDERS, "emulator"] if is_emulated() else FOLDERS
    code = [file for folder in folders for file in sorted((shared / folder).glob("*.py"))]
    files = [scripts.get(name).path, *sorted(shared.glob("*.py")), *code]
    gpus = [device_name(torch.device("cuda", i)) for i in range(torch.cuda.device_count())]
    machine = [platform.node(), os.cpu_count(), gpus]
    settings = json.dumps([options, machine, versions(task, name)]).encode()
    return hashlib.sha256(b"".join([settings, *(f.read_bytes() for f in files)])).hexdigest()[:16]
