"""The record of a run: making and storing it, and the summary that a script prints.

Scripts append records to a file, one JSON object per line; the predictor prints a list of them. A
figure that was not measured is null, never 0. What the names of fields do not say:

- `load` and `train` are the peaks of a phase in GB (1e9 bytes), of the process with the highest:
  allocated on the device; reserved there by the caching allocator, and on the host, both null on a
  CPU, where device and host are one; and by category, of the first three updates.
- `batch_size` is over all `world_size` devices, `micro_batch_size` per device and forward pass;
  `shares` are the parts of a batch: fewer than devices where some of these share a part.
- `steps` are updates, `resumed_at` those before the last --resume; speed is after the updates that
  the ledger has logged, and `input_shapes` are of these.
- Losses are over all devices; `train_accuracy` is of the last epoch, while training.
- `git_commit` ends in -dirty if files differed from it.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path

from watermark import watermark

ROOT = Path(__file__).resolve().parents[2]
NOTHING = "–"  # in place of a figure that is 0 or missing
PACKAGES = ("torch", "torchvision", "lightning", "torchmetrics")  # that all scripts depend on


def new(task, **fields):
    """Return a record of these fields, with versions, commit and date added."""
    made = {"versions": versions(task, fields.get("script")), "git_commit": git_commit()}
    return {**fields, **made, "date": str(datetime.date.today())}


def settings(args, loaders):
    """Return the settings of a run that its record holds, and that --resume must find again."""
    names = ("script", "preset", "model", "pretrained", "shares", "batch_size", "micro_batch_size")
    names += ("seed", "world_size", args.task.input_size)
    of_args = {name: getattr(args, name) for name in names}
    return {**of_args, "dataset": loaders.dataset, "epochs": loaders.epochs}


def append(path, record):
    """Append a record to a file, as one line of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def device_name(device):
    """Return the name of the GPU, with a note if it is emulated, or of the CPU with its cores."""
    if device.type == "cuda":
        import torch  # here: who only reads records answers without it, and at once

        name = torch.cuda.get_device_name(device)
        return f"{name} (emulated)" if "EMULATED_DEVICES" in os.environ else name
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, platform.processor() or platform.machine())}, {os.cpu_count()} cores"


def versions(task, script=None):
    """Return the versions of Python and of the packages that a task or a script depends on."""
    names = (*PACKAGES, *task.packages, *imported(script))
    packages = {name: importlib.metadata.version(name) for name in names}
    return {"python": platform.python_version(), **packages}


def imported(script):
    """Return the installed packages that a script imports, beside PACKAGES."""
    file = ROOT / f"{script}.py"
    text = file.read_text(errors="replace") if file.exists() else ""
    names = sorted({*re.findall(r"^(?:from|import) (\w+)", text, re.M)} - {*PACKAGES})
    return [name for name in names if any(importlib.metadata.distributions(name=name))]


def in_use(task):
    """Return the versions as text, one per line."""
    lines = watermark(packages=",".join((*PACKAGES, *task.packages))).strip()
    return f"{lines}\npython      : {platform.python_version()}"


def git_commit():
    """Return the commit that is checked out, with "-dirty" if files differ from it.

    Stored records do not count: several commands write them, one after the other. Outside of git,
    return the environment variable GIT_COMMIT, or None.
    """
    git = {"cwd": ROOT, "capture_output": True, "text": True}
    diff = ["git", "diff", "--quiet", "HEAD", "--", ".", ":(exclude)shared/*/results/*"]
    try:
        head = subprocess.run("git rev-parse --short=12 HEAD".split(), check=True, **git)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("GIT_COMMIT")
    dirty = "-dirty" if subprocess.run(diff, **git).returncode else ""
    return head.stdout.strip() + dirty


def size(gb):
    """Format a size in GB (1e9 bytes): in GB if it is 1 or more, else in MB."""
    return f"{gb:.2f} GB" if gb >= 1 else f"{gb * 1e3:.1f} MB"


def quality(name, value):
    """Format the value of a metric, "accuracy" (from 0 to 1), "perplexity" or "reward"."""
    if value is None:
        return NOTHING
    return f"{value:.1%}" if name == "accuracy" else f"{value:.2f}"


def summary(task, record):
    """Return the summary that a script prints: a line per phase, then speed and metric."""
    lines = []
    for name in ("load", "train"):
        peak, reserved, host = list(record[name].values())[:3]
        more = "" if reserved is None else f" ({size(reserved)} reserved, {size(host)} on the host)"
        parts = sorted(record[name]["breakdown_gb"].items(), key=lambda part: -part[1])
        held = ", ".join(f"{label} {size(gb)}" for label, gb in parts if gb >= 5e-5)
        whose = f" of rank {record['rank']}" if name == "train" and "rank" in record else ""
        lines.append(f"{name:5} peak{whose} {size(peak)}{more}: {held}")
    updates = record["steps"] - (record["resumed_at"] or 0)
    taken = f"{updates} update{'' if updates == 1 else 's'} in {record['train_seconds']:.1f} s"
    speed = record[f"{task.unit}_per_second"]
    fast = f", {speed:.0f} {task.unit}/s" if speed else ""
    tested = quality(task.learned, record[f"test_{task.learned}"])
    return "\n".join([*lines, f"{taken}{fast}; test {task.learned} {tested}"])
