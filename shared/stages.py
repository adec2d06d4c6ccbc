"""The numbered folders: which there are, what each is about, and what has been measured of them."""

import ast
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"


def names():
    """Returns the stages' folders in order, such as "01_baseline"."""
    return sorted(p.parent.name for p in ROOT.glob("[0-9][0-9]_*/train.py"))


def idea(script):
    """Returns the first line of a script's docstring."""
    return ast.get_docstring(ast.parse(Path(script).read_text())).splitlines()[0]


def records(file):
    """Returns the measurements in a file of one JSON object per line, and how many lines were none (a torn last line)."""
    found, broken = [], 0
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            record = json.loads(line)
            found.append({**record, "stage": record["stage"]})
        except (json.JSONDecodeError, TypeError, KeyError):
            broken += 1
    return found, broken


def next_with_less(stage, phase):
    """Returns the first later stage that needs less of a GPU in a phase, by the measured ladder; None after the last.

    A record made on a CPU counts the host's memory as the device's. So loading is judged by the weights that a stage
    trains with, which is what it loads to the device, and if no stage has less, the last one does: it offloads.
    """
    held = {}
    for r in records(RESULTS / "tiny-cpu.jsonl")[0]:
        held[r["stage"]] = r["train"]["breakdown_gb"]["parameters"] if phase == "load" else r["train"]["device_peak_gb"]
    later = [name for name in names() if name > stage]
    return next((name for name in later if held.get(name, 0) < held.get(stage, 0)), later[-1] if later else None)
