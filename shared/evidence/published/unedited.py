"""Run published scripts on the emulated GPU, unedited."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from shared.cli import UserError
from shared.evidence.published import made_up
from shared.records.record import ROOT

# Python code that runs before a script, for those of before July 2023.
OLD_ADAM = """
from sitecustomize import once_imported

def change(torch):
    from shared.evidence.published.old_adam import adam_of_2023
    torch.old_adam = adam_of_2023()  # kept, or it would end
    torch.old_adam.__enter__()

once_imported("torch", change)
"""


def name(row):
    """Return the name of a row's script: its repository, its file and its arguments."""
    return shlex.join([f"{row['folder']}/{row['script']}", *row.get("args", [])])


def fetch(source, folder):
    """Fetch the repository of a source, unless the folder has it, and make up its data."""
    there = folder / source["folder"]
    if not there.exists():
        git = ["git", "-c", "advice.detachedHead=false"]
        for command in (
            [*git, "clone", "-q", "--filter=blob:none", source["repository"], there],
            [*git, "-C", there, "checkout", "-q", source["commit"]],
        ):
            if subprocess.run(command).returncode:
                raise UserError(f"{source['repository']} cannot be fetched into {there}")
    if "prepare" in source:
        getattr(made_up, source["prepare"])(there)


def run(row, folder):
    """Return the memory of a row's script, {"peak": figures}, or {"peak": {"why": error}}.

    It runs as with `python -m shared.predict`, under the installed PyTorch.
    """
    script = folder / row["folder"] / row["script"]
    options = ["--card", row["card"], "--devices", str(row["devices"]), "--json"]
    command = [sys.executable, "-m", "shared.predict", script, *options, "--", *row.get("args", [])]
    with tempfile.TemporaryDirectory() as startup:
        if row.get("old_adam"):
            Path(startup, "sitecustomize.py").write_text(OLD_ADAM)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), startup])}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        return {"peak": {"why": done.stderr.strip().rpartition("\n")[2].strip()}}
    record = json.loads(done.stdout)[0]
    train = record["train"]
    figures = {
        "allocated_gb": train["device_peak_gb"],
        "reserved_gb": train["device_reserved_gb"],
        "breakdown_gb": train["breakdown_gb"],
        "bound": record["bound"],
        "notes": record["notes"],
        "model": record["model"],
        "inputs": record["inputs"],
    }
    return {"peak": figures}
