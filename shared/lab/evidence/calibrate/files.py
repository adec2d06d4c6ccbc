"""The file of a calibration: lines of JSON, compressed; the first describes the machine."""

import importlib.metadata
import json
import lzma
import platform
import time
from pathlib import Path

import torch

from emulated_gpu import launch
from shared.run.record import device_name, git_commit

# A file has runs of one machine and one state of the code.
IDENTITY = ("gpu", "emulated", "versions", "git_commit")

# Packages that allocate on the GPU, or that choose operations which do.
PACKAGES = "torch torchvision lightning transformers torchao bitsandbytes peft accelerate".split()


def machine():
    """Return the line that describes this machine: its GPU, host, versions, commit and date."""
    gpu = torch.cuda.get_device_properties(0)
    return {
        "kind": "machine",
        "emulated": launch.is_emulated(),
        "gpu": torch.cuda.get_device_name(0),
        "bytes": gpu.total_memory,
        "capability": [gpu.major, gpu.minor],
        "multiprocessors": gpu.multi_processor_count,
        "host": device_name(torch.device("cpu")),
        "versions": versions(),
        "git_commit": git_commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def versions():
    """Return the versions that decide about memory, {name: version}."""
    installed = {name: importlib.metadata.version(name) for name in PACKAGES}
    # cuDNN decides about workspaces, and a build of PyTorch belongs to one CUDA.
    libraries = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {"python": platform.python_version(), **installed, **libraries}


def read(file):
    """Return the machine's line of a file, and the lines of its runs; the file may be incomplete.

    Without a file, return None and no lines.

    Raises:
        ValueError: the file is not one of a calibration.
    """
    file = Path(file)
    if not file.exists():
        return None, []
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt") as lines:
        try:
            # An interruption may have cut the last line.
            machine, *runs = (json.loads(line) for line in lines if line.endswith("\n"))
        except (lzma.LZMAError, EOFError, ValueError) as error:  # ValueError: no JSON, or no text
            raise ValueError(f"{file} is not a file of a calibration: {error}") from None
    if not isinstance(machine, dict) or machine.get("kind") != "machine":
        raise ValueError(f"{file} is not a file of a calibration")
    return machine, runs
