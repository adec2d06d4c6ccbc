"""Run published scripts on the emulated GPU, unedited."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import GPT2Config

from shared.cli import UserError
from shared.records.record import ROOT
from shared.text.tokenizer import new_tokenizer

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
    """Fetch the repository of a source, unless the folder has it, and prepare its data."""
    there = folder / source["folder"]
    if not there.exists():
        git = ["git", "-c", "advice.detachedHead=false"]
        for command in (
            [*git, "clone", "-q", "--filter=blob:none", source["repository"], there],
            [*git, "-C", there, "checkout", "-q", source["commit"]],
        ):
            if subprocess.run(command).returncode:
                raise UserError(f"{source['repository']} cannot be fetched into {there}")
    with contextlib.chdir(there):
        exec(source.get("prepare", ""))


def gpt2(folder):
    """Write into a folder what scripts would download: gpt2, without weights, and texts."""
    lines = [f"the quick brown fox jumps over the lazy dog {n} " * 60 for n in range(2000)]
    tokenizer = new_tokenizer(lines, 2000)
    tokenizer.eos_token = tokenizer.sep_token
    tokenizer.save_pretrained(f"{folder}/gpt2")
    GPT2Config(architectures=["GPT2LMHeadModel"]).save_pretrained(f"{folder}/gpt2")
    texts = Path(folder) / "texts"
    texts.mkdir(exist_ok=True)
    texts.joinpath("train.jsonl").write_text("\n".join(json.dumps({"text": x}) for x in lines))


def run(row, folder):
    """Return the memory of a row's script, {"peak": figures}, or {"peak": {"why": error}}.

    It runs as with `python -m shared.predict`, under the installed PyTorch.
    """
    script = folder / row["folder"] / row["script"]
    options = ["--card", row["card"], "--devices", str(row["devices"]), "--json"]
    command = [sys.executable, "-m", "shared.predict", script, *options, "--", *row.get("args", [])]
    with tempfile.TemporaryDirectory() as before:
        if row.get("old_adam"):
            Path(before, "sitecustomize.py").write_text(OLD_ADAM)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), before])}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        return {"peak": {"why": done.stderr.strip().rpartition("\n")[2].strip()}}
    found = json.loads(done.stdout)[0]
    train = found["train"]
    figures = {
        "allocated_gb": train["device_peak_gb"],
        "reserved_gb": train["device_reserved_gb"],
        "breakdown_gb": train["breakdown_gb"],
        "bound": found["bound"],
        "notes": found["notes"],
        "model": found["model"],
        "inputs": found["inputs"],
    }
    return {"peak": figures}
