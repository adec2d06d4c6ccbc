"""What a measurement was made with: device, versions, commit."""

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

from shared.common.scripts import ROOT

try:
    from watermark import watermark
except ImportError:  # only what is printed needs it; a machine that calibrates can do without
    watermark = None

PACKAGES = ("torch", "torchvision", "lightning", "torchmetrics")


def device_name(device):
    """Returns the name of the GPU, or of the processor and its number of cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    name = next(names, platform.processor() or platform.machine())
    return f"{name}, {os.cpu_count()} cores"


def versions(task):
    """Returns the versions of Python and of the packages that a measurement depends on.

    Args:
        task: a common.task.Task.
    """
    found = {name: importlib.metadata.version(name) for name in (*PACKAGES, *task.packages)}
    return {"python": platform.python_version(), **found}


def in_use(task):
    """Returns the versions for people, a line each: with watermark, if it is there."""
    packages = (*PACKAGES, *task.packages)
    python = f"python      : {platform.python_version()}"
    if watermark is None:
        lines = [f"{name:12}: {importlib.metadata.version(name)}" for name in packages]
        return "\n".join([*lines, python])
    return f"{watermark(packages=','.join(packages)).strip()}\n{python}"


def git_commit():
    """Returns the commit that is checked out, with "-dirty" if files differ from it.

    Stored records do not count: several commands write them, one after the other. Outside of git
    it is what the variable GIT_COMMIT says, or None.
    """
    git = ["git", "-C", str(ROOT)]
    changes = [*git, "diff", "--quiet", "HEAD", "--", ".", ":(exclude)shared/results"]
    with contextlib.suppress(OSError):
        done = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
        )
        if commit := done.stdout.strip():
            dirty = subprocess.run(changes, capture_output=True).returncode != 0
            return f"{commit}-dirty" if dirty else commit
    return os.environ.get("GIT_COMMIT")
