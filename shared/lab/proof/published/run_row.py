"""Run a row of sources.toml on an emulated GPU: one of our programs or a third-party script."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from emulated_gpu import cards
from shared.lab import EMULATOR
from shared.lab.proof import third_party
from shared.lab.proof.published import made_up
from shared.record import ROOT

HERE = Path(__file__).parent
UNITS = {"gb": 1, "gib": cards.GIB, "mib": 2**20 / 1e9, "mb": 1e-3, "bytes": 1e-9}  # in GB
# The line of a program that reads a counter by itself: the name, if there are several, and size.
FIGURE = re.compile(r"^figure ?(.*): ([\d.]+) (\w+)$", re.M)
ERROR = re.compile(r"^[\w.]*(?:Error|Exception): .*$", re.M)
KINDS = ("allocated", "active", "reserved")
# Python code that runs before a script, for figures from before July 2023.
AS_OF_2023 = """
from emulated_gpu.imports import once_imported

def change(torch):
    from shared.lab.proof.published import as_of_2023
    as_of_2023.{function}()

once_imported("torch", change)
"""
CHANGES = {"old_adam": "use_adam_of_2023", "old_fsdp": "use_fsdp_of_2023"}  # by key of a row


def name(row):
    """Return the name of a row's script or program: its folder, its file and its arguments."""
    if "script" not in row:
        file = f"{row['program']}.py"
    else:
        file = f"{row['repository'].rpartition('/')[2]}/{row['script']}"
    return shlex.join([file, *row["args"]])


def prepare(source, folder):
    """Fetch the repository of a source, unless the folder has it, and make up its data."""
    checkout = third_party.repository(folder, source["repository"], source["commit"])
    if "prepare" in source:
        getattr(made_up, source["prepare"])(checkout)


def run(row, folder):
    """Return the figures of a row: GB by counter, figures that a program has printed, and times.

    If it fails, they are {"why": its error}. A row with a version of PyTorch runs under that
    version; the emulated time is by the installed version.
    """
    try:
        # A script of others would train for days, and predict ends it; programs end themselves.
        if "script" in row and "torch" not in row:
            return predicted(row, folder)
        figures = measured(row, folder)
        if "seconds" in row:
            # Operations are counted under the installed PyTorch: counting needs a newer one than
            # some rows name.
            current = predicted(row, folder)
            figures |= {"time": current["time"]}
        return figures
    except Failed as failed:
        return {"why": str(failed)}


class Failed(Exception):
    """A script ended with this error."""


def predicted(row, folder):
    """Run a row as with `python -m shared predict`, under the installed PyTorch."""
    options = ["--card", row["card"], "--json"]
    options += ["--devices", str(row["devices"])] if row["devices"] > 1 else []
    command = [sys.executable, "-m", "shared", "predict", script(row, folder), *options]
    # With --json the record is all of standard output; the script prints on the other one.
    out, printed = _output([*command, "--", *row["args"]], row)
    record = json.loads(out)[0]
    train = record["train"]
    figures = {f"{kind}_gb": train[f"device_{kind}_gb"] for kind in ("active", "reserved")}
    figures["allocated_gb"] = train["device_peak_gb"]
    kept = {key: record[key] for key in ("time", "notes", "model", "inputs")}
    return {**figures, **kept, "printed": _read(printed), "torch": record["versions"]["torch"]}


def measured(row, folder):
    """Run a row under the PyTorch that it names, or the installed one, and read the counters."""
    python = sys.executable
    if "torch" in row:
        python = third_party.python(folder, row["torch"], row["packages"])
    options = ["--card", row["card"]]
    options += ["--devices", str(row["devices"]), "--alone"] if row["devices"] > 1 else []
    options += ["--host", row["host"]] if "host" in row else []
    # A script of others would train for days; the runner ends it after a few updates.
    runner = [HERE / "older_pytorch.py"] if "script" in row else []
    with tempfile.TemporaryDirectory() as out:
        peaks = Path(out, "peaks.json")
        command = [python, "-m", "emulated_gpu", *options, "--json", peaks, *runner]
        printed, _ = _output([*command, script(row, folder), *row["args"]], row)
        processes = json.loads(peaks.read_text())
    # The first of several is compared: a row has one figure for all of them.
    gpus = [gpu for process in processes for gpu in process["peaks"].values()]
    first = gpus[0] if gpus else dict.fromkeys(KINDS, 0)  # a program without GPUs reports none
    figures = {f"{kind}_gb": first[kind] / 1e9 for kind in KINDS}
    return {**figures, "printed": _read(printed), "torch": row.get("torch")}


def script(row, folder):
    """Return the path of the script that a row runs."""
    if "program" in row:
        return HERE / f"programs/{row['program']}.py"
    return third_party.repository(folder, row["repository"], row["commit"]) / row["script"]


def _output(command, row):
    """Run a command; return its texts on standard output and on standard error.

    Raises:
        Failed: the command failed.
    """
    with tempfile.TemporaryDirectory() as startup:
        changes = (AS_OF_2023.format(function=f) for key, f in CHANGES.items() if row.get(key))
        # Python imports this module when it starts, before it runs the script.
        Path(startup, "sitecustomize.py").write_text("".join(changes))
        path = os.pathsep.join([str(ROOT), str(EMULATOR), startup])
        env = {**os.environ, "PYTHONPATH": path, **row["env"]}
        done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True)
    if done.returncode:
        errors = ERROR.findall(done.stderr) or done.stderr.strip().splitlines()[-1:]
        # The last: it may have been raised while an earlier one was handled.
        # A program that was killed has said nothing.
        raise Failed(errors[-1] if errors else f"exit code {done.returncode}")
    return done.stdout, done.stderr


def _read(printed):
    """Return the figures that a program has printed, {name: GB}; the name may be empty."""
    figures = FIGURE.findall(printed)
    return {name: float(number) * UNITS[unit.lower()] for name, number, unit in figures}
