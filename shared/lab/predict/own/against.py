"""A prediction beside a prediction under another Python, such as another version of PyTorch."""

import json
import os
import shutil
import subprocess

from emulated_gpu import cards
from shared.errors import UserError
from shared.lab import EMULATOR
from shared.lab.predict import tables
from shared.lab.records import formats
from shared.memory.blocks import CATEGORIES
from shared.record import ROOT

OLDEST = "2.11"  # whose allocator names in its history what an operation allocates
CHECK = f"""
import importlib.util
missing = [name for name in ("torch", "watermark") if not importlib.util.find_spec(name)]
if missing:
    print("it lacks", *missing)
else:
    import torch
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    if version < {tuple(map(int, OLDEST.split(".")))}:
        print("torch", torch.__version__, "is older than {OLDEST}; emulated-gpu compare takes it")
"""
LEAST = 1e-3  # GB: what differs by less is not shown
MOST = 8  # operations that are shown


def check(python):
    """Raise a UserError if a script cannot be predicted under a Python."""
    if not shutil.which(python):
        raise UserError(f"--against {python}: there is no such program")
    asked = subprocess.run([python, "-c", CHECK], capture_output=True, text=True, cwd="/")
    problem = "it is no Python" if asked.returncode else asked.stdout.strip()
    if problem:
        raise UserError(f"--against {python}: {problem}")


def lines(record, args):
    """Predict a script under the Python args.against; return the differences, as lines of text."""
    command = [args.against, "-m", "shared", "predict", str(args.user_script.resolve()), "--json"]
    card = next(key for key, card in cards.CARDS.items() if card is args.card)
    # On the same card, since kernels differ between cards, and with room for both.
    command += ["--card", card, "--fits", f"{tables.PLENTY_GB}", "--updates", str(args.updates)]
    if args.devices:
        command += ["--devices", str(args.devices)]
    if args.input:
        command += ["--input", "x".join(map(str, args.input))]
    if args.expandable:
        command.append("--expandable")
    # The other environment need not have the emulator.
    path = os.pathsep.join(filter(None, [str(EMULATOR), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path}
    words = [*command, "--", *args.arguments]
    ran = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    if ran.returncode:
        said = ["nothing was said", *filter(None, ran.stderr.splitlines())][-2:]
        return [f"Under {args.against}: exit code {ran.returncode}: {said[0]}"]
    try:
        (other,) = json.loads(ran.stdout)
    except ValueError:  # as of /bin/true, which does all that it is asked
        return [f"Under {args.against}: no prediction; is it a Python with PyTorch?"]
    return ["", *table(other, record)]


def table(old, new):
    """Return two records side by side, by category and by operation, as lines of text."""
    rows = []
    for label, key in (("allocated", "device_peak_gb"), ("reserved", "device_reserved_gb")):
        rows.append((label, *(r["train"][key] for r in (old, new))))
    for label in CATEGORIES:
        rows.append((label, *(r["train"]["breakdown_gb"].get(label, 0) for r in (old, new))))
    before, after = old["operations_gb"], new["operations_gb"]
    names = {**before, **after}
    grown = sorted(names, key=lambda name: -abs(after.get(name, 0) - before.get(name, 0)))
    for name in grown[:MOST]:
        rows.append((name, before.get(name, 0), after.get(name, 0)))
    changed = [row for row in rows[2:] if abs(row[2] - row[1]) >= LEAST]
    heading = ["at the peak", *(f"torch {r['versions']['torch']}" for r in (old, new)), "change"]
    text = formats.aligned(heading, [_row(*row) for row in [*rows[:2], *changed]])
    return [*text, *([] if changed else ["Nothing that holds it differs by 1 MB"])]


def _row(label, old, new):
    """Return a row of texts: a label, two sizes in GB, and their difference."""
    change = f"{'-' if new < old else '+'}{formats.size(abs(new - old))}"
    sizes = [formats.size(gb) if gb else "–" for gb in (old, new)]
    return label, *sizes, change if abs(new - old) >= LEAST else "the same"
