"""Runs scripts for real as well, a few updates each on noise, and compares with the prediction."""

import json
import sys
import tempfile
from pathlib import Path

import psutil
import torch

from shared.metrics import LEDGER_UPDATES
from shared.predict.jobs import PRELOADED, run_jobs
from shared.predict.tables import table
from shared.records import scripts
from shared.records.running import forks, run_script
from shared.records.views import by_model, name, scale, setting


def check(args, jobs):
    """Measures and predicts, and prints both; tells whether every prediction is close enough."""
    records, close = [], True
    for p in run_jobs(jobs):
        needed = p["train"]["device_peak_gb"] * p["world_size"]
        free = psutil.virtual_memory().available / 1e9
        if p["device"] == "simulated CPU" and needed > free:
            said = f"left out: needs {needed:.1f} GB, {free:.1f} GB are free here"
            print(f"{p['script']:24} {said}", file=sys.stderr)
            continue
        measured, last = _measure(args, p)
        if measured:
            records.append({**p, "command": args.command, "measured": measured})
        else:
            close = False
            print(f"{p['script']:24} FAILED: {last}", file=sys.stderr)
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        for group in by_model(records):
            on = group[0]["measured"]["device"]
            print(f"\n{setting(group[0])} on {on}, torch {torch.__version__}\n")
            print("\n".join(_side_by_side(group)))
    return close and all(abs(p / m - 1) <= limit for r in records for *_, m, p, limit in _peaks(r))


def _measure(args, predicted):
    """Runs a script for a few updates: its record or None, and its last line of output."""
    script, n = predicted["script"], predicted["world_size"]  # as many as were predicted for
    # As in a ladder, scripts are forks where they can be, which have PyTorch already.
    forked = not torch.cuda.is_available() and sys.platform == "linux"
    several = scripts.get(script).load().DEVICES > 1 and (forked or scripts.get(script).plain)
    options = ["--preset", args.preset, "--model", predicted["model"], "--data", "fake"]
    options += ["--no-pretrained", "--max-steps", str(LEDGER_UPDATES)]
    options += [] if several else ["--devices", str(n)]
    options += ["--max-length", str(args.max_length)] if args.max_length else []
    options += ["--trust-remote-code"] * args.trust_remote_code
    context = forks(PRELOADED) if forked else None
    with tempfile.TemporaryDirectory() as logs:
        return run_script(script, options, Path(logs) / "log", n if several else None, context)


def _peaks(record):
    """Yields (phase, what, measured GB, predicted GB, largest relative error) of both phases."""
    on_cpu = record["measured"]["train"]["device_reserved_gb"] is None
    allocated = 0.01 if on_cpu else 0.02
    for phase in ("load", "train"):
        for what, key, limit in (("allocated", "peak", allocated), ("reserved", "reserved", 0.08)):
            m, p = (r[phase][f"device_{key}_gb"] for r in (record["measured"], record))
            if m:
                yield phase, what, m, p, limit


def _side_by_side(records):
    """Returns predicted and measured peaks of one model, as lines of text."""
    gb_or_mb, factor = scale(records)
    columns = {
        "script": lambda row: name(row[0]),
        "phase": lambda row: row[1],
        "peak": lambda row: row[2],
        f"measured {gb_or_mb}": lambda row: f"{row[3] * factor:.3f}",
        f"predicted {gb_or_mb}": lambda row: f"{row[4] * factor:.3f}",
        "error": lambda row: f"{row[4] / row[3] - 1:+.2%}",
        "bytes": lambda row: f"{round((row[4] - row[3]) * 1e9):+,}",
    }
    return table([(r, *peak) for r in records for peak in _peaks(r)], columns)
