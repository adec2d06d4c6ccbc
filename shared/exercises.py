"""The pages' exercises: a question, a command that prints the answer, and the answer as it was computed from records.

`python -m shared.exercises` runs all the commands, the trainings and the predictions, and writes what they print of
memory to shared/results/exercises.json. The pages' answers are made from that file.
"""

import dataclasses
import inspect
import json
import math
import shlex
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared import UserError, answers, cli, ladder, predict, stages, workers
from shared.answers import answer as answer
from shared.exercise_list import EXERCISES
from shared.ledger import CATEGORIES

FILE = stages.RESULTS / "exercises.json"
MEASURED, PREDICTED = stages.RESULTS / "tiny-cpu.jsonl", stages.RESULTS / "predicted-full.json"
KEPT = ("stage", "script", "technique", "model", "image_px", "max_length", "pretrained", "dataset", "device", "world_size", "batch_size", "micro_batch_size", "steps", "load", "train", "host_breakdown_gb", "test_accuracy", "versions", "git_commit", "command", "date")
TOLERANCE = 0.05  # for another version of PyTorch than that of the record


@dataclasses.dataclass(frozen=True)
class Answered:
    """An exercise as a page shows it; answer is Markdown."""

    question: str
    command: str
    answer: str


def is_prediction(command):
    """Tells a prediction from a script."""
    return shlex.split(command)[1:3] == ["-m", "shared.predict"]


def commands(exercise):
    """Returns the commands of an exercise: its own and, if it compares with another one, that."""
    return [exercise.command, *([exercise.against] if exercise.against.startswith("python ") else [])]


def predictions(asked):
    """Predicts what commands ask for, as they do it themselves, all at once: {command: list of records}."""
    wanted = []
    for command in asked:
        args = predict.parse(shlex.split(command)[3:])
        options = {name: getattr(args, name) for name in inspect.signature(workers.wanted).parameters if name != "model" and hasattr(args, name)}
        wanted += [(command, job) for job in predict.jobs(args, device=args.on or "gpu", **options)]
    records = workers.run([("simulation", "predict", *job) for _, job in wanted])
    return {command: [{**r, "command": command} for (of, _), r in zip(wanted, records) if of == command] for command in asked}


def trainings(asked, folder):
    """Runs scripts, two at a time, without a GPU, as the committed ladder was: {command: list of records}.

    Args:
        folder: for what they print.

    Raises:
        UserError: one of them failed.
    """

    def train(command):
        script, *options = shlex.split(command)[1:]
        run = next(run for run in stages.runs(stages.names()) if stages.path(run) == stages.ROOT / script)
        record, last = ladder.run_script(run, options, folder / f"{asked.index(command)}.log")
        if not record:
            raise UserError(f"{command} failed: {last}")
        print(f"{command}: done", flush=True)
        return [{**record, "command": command}]

    with workers.environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"), ThreadPoolExecutor(2) as pool:
        return dict(zip(asked, pool.map(train, asked)))


def compared(exercise, printed):
    """Returns the two records that an exercise compares: what its command printed last, and what to compare it with.

    That is a run in the same output, if there is one of that name; else the committed one; or what a second command printed.

    Args:
        printed: {command: list of records}.
    """
    *others, record = printed[exercise.command]
    if exercise.against in printed:
        return record, printed[exercise.against][-1]
    committed = json.loads(PREDICTED.read_text()) if is_prediction(exercise.command) else stages.records(MEASURED)[0]
    return record, next(r for r in [*others, *committed] if stages.run_of(r) == exercise.against)


def kept(record):
    """Returns what an answer needs of a record."""
    return {**{key: record[key] for key in KEPT if key in record}, "command": record.get("ladder") or record["command"]}


def stored(printed):
    """Returns what the file has of the exercises' records.

    Args:
        printed: {command: list of records}.
    """
    found = []
    for e in EXERCISES:
        if e.command in printed:
            record, against = map(kept, compared(e, printed))
            found.append({"stage": e.stage, "number": e.number, "command": e.command, "record": record, "against": against})
    return found


def differences(then, now):
    """Returns what differs between two entries of the file, as lines: memory to the byte if PyTorch is of the same
    version, else by more than 5 %; accuracies, which processors round differently, by more than a tenth.
    """
    if (then["command"], then["stage"], then["number"]) != (now["command"], now["stage"], now["number"]):
        return [f"{now['stage']}, exercise {now['number']}: another exercise is stored"]
    found = []
    for which in ("record", "against"):
        a, b = then[which], now[which]
        tolerance = 0 if a["versions"]["torch"] == b["versions"]["torch"] else TOLERANCE
        pairs = [(f"{phase} {key}", a[phase][key], b[phase][key]) for phase in ("load", "train") for key in ("device_peak_gb", "host_peak_gb")]
        parts = [(phase, *(r[phase]["breakdown_gb"] for r in (a, b))) for phase in ("load", "train")]
        parts += [(f"{phase}, host", *(r["host_breakdown_gb"][phase] for r in (a, b))) for phase in ("load", "train") if "host_breakdown_gb" in a]
        # To the byte each category counts; with another PyTorch a small one may change by more than 5 % of itself.
        pairs += [(f"{phase} {label}", x.get(label), y.get(label)) for phase, x, y in parts for label in CATEGORIES if not tolerance]
        for name, x, y in pairs:
            if x != y and (None in (x, y) or not math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance and 1e-4)):
                found.append(f"{now['stage']}, exercise {now['number']}, {which}, {name}: stored {x}, now {y}")
        x, y = a["test_accuracy"], b["test_accuracy"]
        if (x is None) != (y is None) or (x is not None and abs(x - y) > 0.1):
            found.append(f"{now['stage']}, exercise {now['number']}, {which}, test accuracy: stored {x}, now {y}")
    return found


def read():
    """Returns the stored file's entries, {(stage, number): entry}.

    Raises:
        UserError: there is no such file, or it lacks an exercise.
    """
    try:
        entries = {(e["stage"], e["number"]): e for e in json.loads(FILE.read_text())}
    except (OSError, json.JSONDecodeError):  # none yet, or an interrupted one
        entries = {}
    missing = [f"{e.stage}, exercise {e.number}" for e in EXERCISES if entries.get((e.stage, e.number), {}).get("command") != e.command]
    if missing:
        raise UserError(f"{FILE.name} has no answer to {missing[0]}; python -m shared.exercises writes it")
    return entries


def all_of(stage):
    """Returns a stage's exercises with their answers, from the stored file, as Answered.

    Raises:
        UserError: the file lacks one.
    """
    entries = read()
    return [Answered(e.question, e.command, answers.text(e, entries[e.stage, e.number]["record"], entries[e.stage, e.number]["against"], FILE)) for e in EXERCISES if e.stage == stage]


def part(stage):
    """Returns a page's exercises: each with its command, and its answer folded up."""
    blocks = []
    for e in all_of(stage):
        blocks += [e.question, "", "```bash", e.command, "```", "", "<details><summary>Answer</summary>", "", e.answer, "", "</details>", ""]
    return "\n".join(blocks).strip()


def main(argv=None):
    parser = cli.Parser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a stored answer is not what the commands give now")
    check = parser.parse_args(argv).check
    then = read() if check else cli.writable(FILE)
    asked = list(dict.fromkeys(command for e in EXERCISES for command in commands(e)))
    with tempfile.TemporaryDirectory() as folder:
        printed = {**predictions(list(filter(is_prediction, asked))), **trainings([c for c in asked if not is_prediction(c)], Path(folder))}
    now = stored(printed)
    if check:
        found = [line for entry in now for line in differences(then[entry["stage"], entry["number"]], entry)]
        print("\n".join(found) or "the stored answers are what the commands give now")
        sys.exit(1 if found else 0)
    FILE.write_text(json.dumps(now, indent=1) + "\n")
    print(f"{FILE.relative_to(stages.ROOT)}: {len(now)} answers")


if __name__ == "__main__":
    cli.run(main)
