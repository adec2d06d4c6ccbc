"""Runs scripts for real as well, a few updates each on noise, and compares with the prediction."""

import json
import sys
import tempfile
from pathlib import Path

import psutil
import torch

from shared.metrics import LEDGER_UPDATES
from shared.predict import tables
from shared.predict.jobs import PRELOADED, run_jobs
from shared.records import scripts
from shared.records.record import by_model, setting
from shared.records.running import forks, run_script
from shared.records.units import size


def measure(args, predicted, logs):
    """Runs a script for a few updates on noise, and prints its peaks, or why it failed.

    Args:
        args: options of the predictor.
        predicted: record of a prediction.
        logs: folder for what the script prints.

    Returns:
        its record; None if it failed.
    """
    name, n = predicted["script"], predicted["world_size"]  # as many as were predicted for
    # As in a ladder, scripts are forks where they can be, which have PyTorch already.
    forked = not torch.cuda.is_available() and sys.platform == "linux"
    several = scripts.get(name).load().DEVICES > 1 and (forked or scripts.get(name).plain)
    options = ["--preset", args.preset, "--model", predicted["model"], "--data", "fake"]
    options += ["--no-pretrained", "--max-steps", str(LEDGER_UPDATES)]
    options += [] if several else ["--devices", str(n)]
    options += ["--max-length", str(args.max_length)] if args.max_length else []
    options += ["--trust-remote-code"] * args.trust_remote_code
    context = forks(PRELOADED) if forked else None
    record, last = run_script(name, options, logs / "log", n if several else None, context)
    said = f"FAILED: {last}"
    if record:
        load, train = (size(record[phase]["device_peak_gb"]) for phase in ("load", "train"))
        said = f"measured: {load} loading, {train} training"
    print(f"{name:24} {said}", file=sys.stderr, flush=True)
    return record


def check(args, jobs):
    """Measures and predicts, and prints both.

    Args:
        args: options of the predictor.
        jobs: as run_jobs() takes them.

    Returns:
        whether every prediction is close enough, and every script ran.
    """
    records, failed = [], 0
    for p in run_jobs(jobs):
        needed = p["train"]["device_peak_gb"] * p["world_size"]
        free = psutil.virtual_memory().available / 1e9
        if p["device"] == "simulated CPU" and needed > free:
            said = f"left out: needs {needed:.1f} GB, {free:.1f} GB are free here"
            print(f"{p['script']:24} {said}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as logs:
            measured = measure(args, p, Path(logs))
        failed += measured is None
        records += [{**p, "command": args.command, "measured": measured}] if measured else []
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        for group in by_model(records):
            on = group[0]["measured"]["device"]
            print(f"\n{setting(group[0])} on {on}, torch {torch.__version__}\n")
            print("\n".join(tables.compare(group)))
    errors = [(abs(error), limit) for r in records for *_, error, limit in tables.differences(r)]
    return not failed and all(error <= limit for error, limit in errors)
