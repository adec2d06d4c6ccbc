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


def measure(args, predicted, logs):
    """Runs a script for a few updates on noise.

    Args:
        args: options of the predictor.
        predicted: record of a prediction.
        logs: folder for what the script prints.

    Returns:
        its record, and its last line of output; if it failed, None, and why.
    """
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
    return run_script(script, options, logs / "log", n if several else None, context)


def check(args, jobs):
    """Measures and predicts, and prints both.

    Args:
        args: options of the predictor.
        jobs: as run_jobs() takes them.

    Returns:
        whether every prediction is close enough, and every script ran.
    """
    records, failed = [], False
    for p in run_jobs(jobs):
        needed = p["train"]["device_peak_gb"] * p["world_size"]
        free = psutil.virtual_memory().available / 1e9
        if p["device"] == "simulated CPU" and needed > free:
            said = f"left out: needs {needed:.1f} GB, {free:.1f} GB are free here"
            print(f"{p['script']:24} {said}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as logs:
            measured, last = measure(args, p, Path(logs))
        if measured:
            records.append({**p, "command": args.command, "measured": measured})
        else:
            failed = True
            print(f"{p['script']:24} FAILED: {last}", file=sys.stderr)
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        for group in by_model(records):
            on = group[0]["measured"]["device"]
            print(f"\n{setting(group[0])} on {on}, torch {torch.__version__}\n")
            print("\n".join(compare(group)))
    errors = [(abs(error), limit) for r in records for *_, error, limit in differences(r)]
    return not failed and all(error <= limit for error, limit in errors)


def differences(record):
    """Yields (phase, what, measured GB, predicted GB, relative error, largest error allowed).

    Args:
        record: of a prediction, with "measured".
    """
    measured = record["measured"]
    allocated = 0.01 if on_cpu(record) else 0.02
    peaks = ("allocated", "device_peak_gb", allocated), ("reserved", "device_reserved_gb", 0.08)
    for phase in ("load", "train"):
        for what, key, limit in peaks:
            m, p = measured[phase][key], record[phase][key]
            if m:
                yield phase, what, m, p, p / m - 1, limit


def on_cpu(record):
    """Tells whether a script was measured without a GPU."""
    return record["measured"]["train"]["device_reserved_gb"] is None


def compare(records):
    """Returns predicted and measured peaks of one model side by side, as lines of text.

    Args:
        records: of predictions, with "measured".
    """
    gb_or_mb, factor = scale(records)

    def breakdown(r, phase):
        # On a GPU the ledger measures tensors, and knows no blocks and no workspaces.
        same = r[phase]["breakdown_gb"] == r["measured"][phase]["breakdown_gb"]
        return ("same" if same else "differs") if on_cpu(r) else ""

    columns = {
        "script": lambda row: name(row[0]),
        "phase": lambda row: row[1],
        "peak": lambda row: row[2],
        f"measured {gb_or_mb}": lambda row: f"{row[3] * factor:.3f}",
        f"predicted {gb_or_mb}": lambda row: f"{row[4] * factor:.3f}",
        "error": lambda row: f"{row[5]:+.2%}",
        "bytes": lambda row: f"{round((row[4] - row[3]) * 1e9):+,}",
        "breakdown": lambda row: breakdown(*row[:2]),
    }
    return table([(r, *difference) for r in records for difference in differences(r)], columns)
