"""Run a row on emulated GPUs: a program of ours, or a script of others, and read its figures."""

import functools
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from emulated_gpu import cards, launch
from proof import made_up, rows, third_party
from proof.rows import HERE

# The line of a program that reads a counter by itself: the name, if there are several, and size.
FIGURE = re.compile(r"^figure (.*): ([\d.]+) bytes$", re.M)
ERROR = re.compile(r"^[\w.]*(?:Error|Exception): .*$", re.M)
KINDS = ("allocated", "active", "reserved")
# Python code that runs before a script, for figures from before July 2023.
AS_OF_2023 = """
from emulated_gpu.imports import once_imported

def change(torch):
    from proof import as_of_2023
    as_of_2023.{function}()

once_imported("torch", change)
"""
CHANGES = {"old_adam": "use_adam_of_2023", "old_fsdp": "use_fsdp_of_2023"}  # by key of a row
PROGRAM = HERE / "programs" / "run.py"
# A script of others would train for days; this ends it after a few updates.
FEW_UPDATES = HERE / "older_pytorch.py"
WHY = [sys.executable, "-m", "emulated_gpu", "why"]


class Failed(Exception):
    """A script ended with this error."""


def checkout(row, folder):
    """Return the path of a row's repository, which is fetched if the folder lacks it."""
    return third_party.repository(folder, row["repository"], row["commit"])


@functools.cache  # once for all rows of a repository
def make(function, repository, *words):
    """Make the data of a repository by a function of made_up.py."""
    getattr(made_up, function)(repository, *words)


def prepare(row, folder):
    """Fetch what a row needs into a folder: repository, data, and an environment of PyTorch.

    Rows that run side by side must not fetch the same.
    """
    if "repository" in row:
        repository = checkout(row, folder)
        for function, *words in row["prepare"]:
            make(function, repository, *words)
    python(row, folder)


def python(row, folder):
    """Return the Python with the PyTorch that a row names, by default the installed PyTorch."""
    if row["torch"]:
        return third_party.python(folder, row["torch"], row["packages"])
    return sys.executable


def words(row, folder):
    """Return what a row runs: a file or -m or -c, and arguments."""
    if "program" in row:
        return [PROGRAM, row["program"], *row["args"]]
    if "script" in row:
        return [checkout(row, folder) / row["script"], *row["args"]]
    # A script is run by the emulator; Python's own -c needs the interpreter before it.
    return [python(row, folder)] * (row["command"][0] == "-c") + row["command"]


def run(row, folder, *options):
    """Run a row under its PyTorch, as `python -m emulated_gpu` does with further options.

    Return the subprocess.CompletedProcess, whatever its exit code.
    """
    options = ["--card", row["card"], *options]
    options += ["--devices", row["devices"], "--alone"] if row["devices"] > 1 else []
    options += ["--host", row["host"]] if "host" in row else []
    few = [FEW_UPDATES] if "script" in row else []
    command = [python(row, folder), "-m", "emulated_gpu", *options, *few, *words(row, folder)]
    return start(command, row, folder)


def start(command, row, folder, cwd=None):
    """Start a command in the environment of a row; return it when it has ended."""
    path = [HERE.parent]
    path += [checkout(row, folder) / name for name in row["path"]]
    # Some scripts import a package that is only in another repository.
    for other in row["also"]:
        path += [checkout(other, folder) / name for name in other["path"]]
    path += third_party.distributions(folder, row["distributions"])
    if "command" in row:
        cwd = checkout(row, folder) / row.get("folder", ".")
    with tempfile.TemporaryDirectory() as startup:
        changes = (AS_OF_2023.format(function=f) for name, f in CHANGES.items() if row.get(name))
        # Python imports this module when it starts, before it runs the script.
        Path(startup, "sitecustomize.py").write_text("".join(changes))
        text = os.pathsep.join(map(str, [*path, startup]))
        env = {**launch.without_gpus(), "PYTHONPATH": text, **row["env"]}
        output = {"capture_output": True, "text": True}
        return subprocess.run([*map(str, command)], cwd=cwd, env=env, **output)


def printed(done):
    """Return what a command has printed on standard output.

    Raises:
        Failed: the command failed.
    """
    if done.returncode:
        errors = ERROR.findall(done.stderr) or done.stderr.strip().splitlines()[-1:]
        # The last: it may have been raised while an earlier one was handled.
        # A program that was killed has said nothing.
        raise Failed(errors[-1] if errors else f"exit code {done.returncode}")
    return done.stdout


def figures(row, folder):
    """Return the figures of a row: GB by counter, figures that a program has printed, and times.

    If it fails, they are {"why": its error}. A row with a version of PyTorch runs under that
    version; the emulated time is by the installed version, since counting operations needs a newer
    one than some rows name.
    """
    try:
        # A script of others would train for days, and predict ends it; programs end themselves.
        if "script" in row and not row["torch"]:
            return predicted(row, folder)
        time = {"time": predicted(row, folder)["time"]} if "seconds" in row else {}
        return {**measured(row, folder), **time}
    except Failed as failed:
        return {"why": str(failed)}


def predicted(row, folder):
    """Return the figures of `emulated-gpu why`, under the installed PyTorch."""
    options = ["--card", row["card"]]
    options += ["--devices", row["devices"]] if row["devices"] > 1 else []
    file, *arguments = words(row, folder)
    with tempfile.TemporaryDirectory() as out:
        answer = Path(out, "why.json")
        command = [*WHY, file, *options, "--json", answer, "--", *arguments]
        printed(start(command, row, folder, cwd=Path(file).parent))
        record = json.loads(answer.read_text())
    train = record["train"]
    sizes = {f"{kind}_gb": train[f"device_{kind}_gb"] for kind in ("active", "reserved")}
    sizes["allocated_gb"] = train["device_peak_gb"]
    return {**sizes, **{name: record[name] for name in ("time", "notes")}}


def measured(row, folder):
    """Return the counters of a run, and the figures that a program has printed."""
    with tempfile.TemporaryDirectory() as out:
        peaks = Path(out, "peaks.json")
        text = printed(run(row, folder, "--json", peaks))
        processes = json.loads(peaks.read_text())
    # The first of several is compared: a row has one figure for all of them.
    gpus = [gpu for process in processes for gpu in process["peaks"].values()]
    first = gpus[0] if gpus else dict.fromkeys(KINDS, 0)  # a program without GPUs reports none
    sizes = {f"{kind}_gb": first[kind] / 1e9 for kind in KINDS}
    by_name = {name: float(number) / 1e9 for name, number in FIGURE.findall(text)}
    return {**sizes, "printed": by_name}


def record(row, found):
    """Return the record of a row of published figures; `found` are the figures of its run."""
    gb = rows.published_gb(row)
    by_counter = found.get(f"{row['counter']}_gb")
    made = {
        "source": row["source"],
        "what": row["what"],
        "counter": row["counter"] if gb else None,
        "published_gb": gb,
        # What a program prints of its own counts, where it prints the figure of this row.
        "emulated_gb": found.get("printed", {}).get(row["read"], by_counter),
        "card": cards.CARDS[row["card"]].title,
        "devices": row["devices"],
        "published_ms": rows.published_ms(row),
        "script": rows.script(row),
        "cudnn": row["cudnn"],
        "torch": row["torch"] or importlib.metadata.version("torch"),
    }
    if "why" in found:  # it has not run, so there is nothing to compare
        made |= dict.fromkeys(("counter", "published_gb", "published_ms"))
    kept = ("allocated_gb", "active_gb", "reserved_gb", "time", "notes", "why")
    return made | {name: found[name] for name in kept if name in found}
