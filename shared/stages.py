"""The numbered folders: which there are, what each is about, and what has been measured of them."""

import ast
import importlib.util
import json
import re
import types
from pathlib import Path

from shared import UserError, images

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"


def names():
    """Returns the stages' folders in order, such as "01_baseline"."""
    return sorted(p.parent.name for p in ROOT.glob("[0-9][0-9]_*/train.py"))


def idea(script):
    """Returns the first line of a script's docstring."""
    return ast.get_docstring(ast.parse(Path(script).read_text())).splitlines()[0]


def runs(names):
    """Returns what there is to run and to measure in these folders: "06_sgd" for its train.py; where a folder has a
    before.py to compare with, both of them, "11_llm/before" and "11_llm/train".
    """
    return [run for name in names for run in ([f"{name}/before", f"{name}/train"] if (ROOT / name / "before.py").exists() else [name])]


def chain():
    """Returns the folders of the ladder, where each train.py builds on the one of the folder before."""
    return [name for name in names() if runs([name]) == [name]]


def plain(names):
    """Returns what there is to run in these folders in plain PyTorch, such as "06_sgd/plain".

    Raises:
        UserError: there is no such script in one of them.
    """
    missing = [name for name in names if not path(f"{name}/plain").exists()]
    if missing:
        raise UserError(f"{missing[0]} has no plain.py; {chain()[0]} to {chain()[-1]} have one")
    return [f"{name}/plain" for name in names]


def run_of(record):
    """Returns which of runs() or plain() a record is of."""
    if record["script"] == "plain":
        return f"{record['stage']}/plain"
    return next((run for run in runs([record["stage"]]) if run.endswith(f"/{record['script']}")), record["stage"])


def path(run):
    """Returns the script of one of runs() or plain()."""
    stage, _, script = run.partition("/")
    return ROOT / stage / f"{script or 'train'}.py"


def load(run):
    """Imports a script, one of runs() or plain(), as a module of its own."""
    spec = importlib.util.spec_from_file_location(run.replace("/", "_"), path(run))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Parsed(Exception):
    pass


def asked_of_cli(script):
    """Returns what a script's main() tells cli.parse: {"batch_size": images, "devices": number, "task": module, ...}.

    Args:
        script: a module from load().
    """

    def parse(file, argv, **asked):
        raise _Parsed({"task": images, "devices": 1, "micro_batch_size": None, "launcher": None, "precision": None, **asked})

    original, script.cli = script.cli, types.SimpleNamespace(parse=parse)
    try:
        script.main([])
    except _Parsed as parsed:
        return parsed.args[0]
    finally:
        script.cli = original


def select(texts, option):
    """Returns the stages that e.g. ["01-06", "08_fsdp"] means, as folders' names in order.

    Args:
        texts: numbers, ranges of numbers, names of folders; several in one text have commas between them.
        option: what to call these texts when they are wrong.

    Raises:
        UserError: it means none, or one that is not there.
    """
    numbers = {name[:2]: name for name in names()}
    chosen = set()
    for part in ",".join(texts).split(","):
        part = part.strip().rstrip("/")
        if part in numbers.values():
            chosen.add(part)
            continue
        if not re.fullmatch(r"\d{1,2}(-\d{1,2})?", part):
            raise UserError(f"{option} {part}: there is no such stage; write numbers and ranges, such as 01-06,08, or names, such as 08_fsdp")
        first, last = (part.split("-") * 2)[:2]
        wanted = [f"{n:02d}" for n in range(int(first), int(last) + 1)]
        missing = [n for n in wanted if n not in numbers]
        if missing or not wanted:
            raise UserError(f"{option} {part}: there is no stage {missing[0] if missing else 'in it'}; there are {min(numbers)} to {max(numbers)}")
        chosen.update(numbers[n] for n in wanted)
    return sorted(chosen)


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


def next_with_less(run, phase):
    """Returns the first later script that needs less of a GPU in a phase, by the measured ladder; None after the last.

    A record made on a CPU counts the host's memory as the device's. So loading is judged by the weights that a script
    trains with, which is what it loads to the device, and if none has less, the last one does: it offloads.
    """
    held = {}
    for r in records(RESULTS / "tiny-cpu.jsonl")[0]:
        held[run_of(r)] = r["train"]["breakdown_gb"]["parameters"] if phase == "load" else r["train"]["device_peak_gb"]
    run = run.removesuffix("/plain")
    comparable = chain() if run in chain() else runs([run.partition("/")[0]])
    later = [name for name in comparable if name > run]
    return next((name for name in later if held.get(name, 0) < held.get(run, 0)), later[-1] if later else None)
