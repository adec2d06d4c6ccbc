"""Fingerprints of measurements, by which the ladder finds those that it need not repeat."""

import hashlib
import json
import os
import platform

import torch

from emulated_gpu.launch import is_emulated
from shared.lab.records import scripts
from shared.run.record import ROOT, device_name, versions

# What scripts import, and what runs them; not the door or the tables, whose words change no figure.
HEART = ("[a-z]*.py", "memory/**/*.py", "run/*.py", "images/*.py", "text/**/*.py")
MODULES = (*HEART, "lab/records/running.py")
EMULATOR = "emulator/emulated_gpu"
SOURCES = (".py", ".c", ".h", ".csv")  # of the emulator; the last has the cards


def fingerprint(name, options, task):
    """Return a hash of all that a measurement depends on: options, code, versions, machine.

    Args:
        name: of the script.
        options: its command line.
        task: its task, such as images.cli.TASK.
    """
    gpus = [device_name(torch.device("cuda", i)) for i in range(torch.cuda.device_count())]
    machine = [platform.node(), os.cpu_count(), gpus]
    # Versions of the packages of this task only: another's do not change the result.
    settings = json.dumps([options, machine, versions(task, name)])
    code = hashlib.sha256(settings.encode())
    # All code of the heart, since a change anywhere may change a measurement.
    for file in _files(name):
        code.update(file.read_bytes())
    return code.hexdigest()[:16]  # 64 bits: enough for some hundred records


def _files(name):
    """Return the files of a script and of all that it may import from this repository."""
    shared = ROOT / "shared"
    files = [scripts.get(name).path]
    for modules in MODULES:
        files += sorted(shared.glob(modules))
    # On a real device the emulator takes no part.
    if is_emulated():
        emulator = (shared / EMULATOR).rglob("*")
        files += sorted(file for file in emulator if file.suffix in SOURCES)
    return files
