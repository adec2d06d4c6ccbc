"""Run third-party scripts, unedited, and compare allocator events with those of the real GPU.

Their repositories have the allocator's history of the real GPU, as torch.cuda.memory writes it.
"""

import io
import json
import os
import pickle
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from shared.lab import EMULATOR
from shared.lab.proof import third_party
from shared.lab.proof.traces import compare_events

# Of the two events of a free, only the second, after which the memory is available again.
ACTIONS = {"alloc", "free_completed", "segment_alloc", "segment_free"}
ACTIONS |= {"segment_map", "segment_unmap"}  # of expandable segments
# As much as importlib.metadata needs to find a package.
FOUND = "Metadata-Version: 2.1\nName: {}\nVersion: 1\n"


def rows():
    """Return the rows of scripts.toml, each with the defaults and the settings of its source."""
    text = Path(__file__).with_name("scripts.toml").read_text("utf-8")
    sources = tomllib.loads(text)["sources"]
    common = {"card": "a100", "folder": ".", "path": [], "packages": [], "environment": {}}
    common |= {"make": [], "also": [], "distributions": [], "prepare": []}
    return [{**common, **source, **row} for source in sources for row in source["rows"]]


class Numbers(pickle.Unpickler):
    """An Unpickler of numbers, texts, lists and dictionaries; it runs no code of the file."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is not read")


def history(snapshot):
    """Return the events of the busiest device in a snapshot, "ACTION SIZE", and bytes reserved."""
    content = Numbers(io.BytesIO(snapshot)).load()
    traces = content["device_traces"]
    # A snapshot has a trace for each GPU of the machine; one of them was at work.
    device = max(range(len(traces)), key=lambda i: len(traces[i]))
    events = [f"{e['action']} {e['size']}" for e in traces[device] if e["action"] in ACTIONS]
    segments = (s for s in content["segments"] if s["device"] == device)
    return events, sum(segment["total_size"] for segment in segments)


def what_runs(row):
    """Return a text that is the same for rows whose snapshots come from the same run."""
    keys = ("repository", "commit", "torch", "command", "folder", "environment", "card")
    return json.dumps([row[key] for key in keys])


def run(group, folder):
    """Run the script of some rows with its PyTorch on an emulated GPU; yield a record for each.

    Raises:
        UserError: its repository or its PyTorch cannot be had.
        RuntimeError: it wrote no snapshot.
    """
    row = group[0]
    checkout = third_party.repository(folder, row["repository"], row["commit"])
    python = third_party.python(folder, row["torch"], row["packages"])
    for command in row["prepare"]:
        preparation = [sys.executable, Path(__file__).with_name("prepare.py"), *command]
        subprocess.run(preparation, cwd=checkout, check=True)
    written = [checkout / each["writes"] for each in group]
    for file in written:
        file.unlink(missing_ok=True)  # the real one may lie there
    # The authors' folders for results are often not in their repositories.
    for needed in [*(file.parent for file in written), *(checkout / name for name in row["make"])]:
        needed.mkdir(parents=True, exist_ok=True)
    path = [EMULATOR, *(checkout / name for name in row["path"]), *distributions(row, folder)]
    # Some scripts import a package that is only in another repository.
    for other in row["also"]:
        elsewhere = third_party.repository(folder, other["repository"], other["commit"])
        path += [elsewhere / name for name in other["path"]]
    env = {**os.environ, **row["environment"], "PYTHONPATH": os.pathsep.join(map(str, path))}
    # A script is run by the emulator; Python's own -c needs the interpreter before it.
    program = row["command"] if row["command"][0] != "-c" else [python, *row["command"]]
    command = [python, "-m", "emulated_gpu", "--card", row["card"], *program]
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=checkout / row["folder"], env=env, capture_output=True, text=True
    )
    # A row's share: one run has written the snapshots of all of them.
    seconds = (time.perf_counter() - began) / len(group)
    for each, file in zip(group, written):
        # The snapshot counts, not the exit code: what a script does after it is not compared.
        if not file.exists():
            raise RuntimeError(f"{each['name']} wrote no snapshot: {done.stderr.strip()[-500:]}")
        real, reserved = history(snapshot(checkout, each))
        emulated, emulated_reserved = history(file.read_bytes())
        yield {
            **{key: each[key] for key in ("name", "what", "repository", "commit", "torch", "card")},
            "events": len(real),
            "equal": compare_events.equal(real, emulated),
            "verdict": compare_events.verdict(real, emulated),
            "reserved": reserved,
            "emulated_reserved": emulated_reserved,
            "seconds": seconds,
        }


def snapshot(checkout, row):
    """Return the real snapshot, out of the commit that has it."""
    name = f"{row.get('snapshot_commit', row['commit'])}:{row['snapshot']}"
    return subprocess.run(
        ["git", "-C", checkout, "show", name], check=True, capture_output=True
    ).stdout


def distributions(row, folder):
    """Return a folder in which importlib.metadata finds packages that the authors had installed."""
    home = folder.resolve() / "distributions"
    for name in row["distributions"]:
        info = home / f"{name}-1.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(FOUND.format(name))
    return [home] if row["distributions"] else []
