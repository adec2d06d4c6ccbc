"""Figures for people, and where they come from: units, machine, versions, commit."""

import contextlib
import importlib.metadata
import itertools
import json
import os
import platform
import subprocess
from pathlib import Path

import torch

from shared import stages

PACKAGES = ("torch", "torchvision", "lightning", "torchmetrics")


def size(gb):
    """Writes a size in GB (1e9 bytes) for people: in GB from 1 on, below in MB."""
    return f"{gb:.2f} GB" if gb >= 1 else f"{gb * 1e3:.1f} MB"


def breakdown(measured):
    """Writes what a phase held at its peak for people, the largest first, without what is below 0.05 MB."""
    parts = sorted(measured["breakdown_gb"].items(), key=lambda part: -part[1])
    return ", ".join(f"{label} {size(gb)}" for label, gb in parts if gb >= 5e-5)


def setting(record):
    """Writes which model a record is of, and with what inputs, for people."""
    return f"{record['model']}, {record['max_length']} tokens" if "max_length" in record else f"{record['model']} at {record['image_px']} px"


def counted(record):
    """Returns what a record counts: "images" or "texts"."""
    return "texts" if "max_length" in record else "images"


def speed(record):
    """Returns the images or texts per second that a record tells of, None if they were not measured."""
    return record[f"{counted(record)}_per_second"]


def by_model(records):
    """Returns the records in groups of one model each: only these can be compared."""
    return [list(group) for _, group in itertools.groupby(records, key=setting)]


def scale(records):
    """Returns the unit that the records' peaks are best told in, and how many of it are one GB."""
    return ("GB", 1) if max(r["train"]["device_peak_gb"] for r in records) >= 1 else ("MB", 1000)


def png_text(records):
    """Returns what a picture of records says of itself inside its PNG file, so that a test can tell when it is stale."""
    return {"Description": json.dumps({stages.run_of(r): r["train"]["device_peak_gb"] for r in records})}


def aligned(heading, rows):
    """Returns a table of texts as lines, without the columns that have nothing in any row; the first is on the left."""
    used = [any(column) for column in zip(*rows)]
    rows = [[cell for cell, use in zip(row, used) if use] for row in [heading, *rows]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def device_name(device):
    """Returns the name of the GPU, or of the processor and its number of cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor() or platform.machine())
    return f"{name}, {os.cpu_count()} cores"


def versions(task):
    """Returns the versions of the packages that a measurement depends on; task is shared.images or shared.text."""
    return {name: importlib.metadata.version(name) for name in (*PACKAGES, *task.PACKAGES)}


def git_commit():
    """Returns the commit that is checked out, with "-dirty" if files differ from it, or None outside of git."""
    command = ["git", "-C", str(stages.ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.strip() or None
    return None
