"""What a measurement was made with: device, versions, commit."""

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

import torch

from shared.records.scripts import ROOT

try:
    from watermark import watermark
except ImportError:  # only what is printed needs it; a machine that calibrates can do without
    watermark = None

PACKAGES = ("torch", "torchvision", "lightning", "torchmetrics")
OF_SCRIPTS = ("torchao", "peft", "accelerate")  # what some scripts import besides


def device_name(device):
    """Returns the name of the GPU, or of the processor and its number of cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    name = next(names, platform.processor() or platform.machine())
    return f"{name}, {os.cpu_count()} cores"


def versions(task, script=None):
    """Returns the versions of Python and of the packages that a measurement depends on.

    Args:
        task: a common.task.Task.
        script: name of a script, for the packages that it alone imports; None for none.
    """
    names = (*PACKAGES, *task.packages, *imported(script))
    found = {name: importlib.metadata.version(name) for name in names}
    return {"python": platform.python_version(), **found}


def imported(script):
    """Returns which of OF_SCRIPTS a script imports; none if there is no such script."""
    file = ROOT / f"{script}.py"
    text = file.read_text() if file.exists() else ""
    return [name for name in OF_SCRIPTS if re.search(rf"^(from|import) {name}\b", text, re.M)]


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
    changes = [*git, "diff", "--quiet", "HEAD", "--", ".", ":(exclude)shared/evidence/results"]
    with contextlib.suppress(OSError):
        done = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
        )
        if commit := done.stdout.strip():
            dirty = subprocess.run(changes, capture_output=True).returncode != 0
            return f"{commit}-dirty" if dirty else commit
    return os.environ.get("GIT_COMMIT")
