"""The exercises on the lesson pages: a question, a command that prints the answer, and the reason.

All of that stands on the page, where a teacher edits it; only the table of the answer is generated.
`python -m shared exercises` runs all commands, scripts and predictions, and stores their
records; the tables are made from that file.
"""

import dataclasses
import os
import re
import shlex
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from shared.cli import Parser, UserError
from shared.lab.lessons import exercise_answers
from shared.lab.predict import command as predictor
from shared.lab.predict.jobs import run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts, stored
from shared.lab.records.origin import origin
from shared.lab.records.reading import read
from shared.lab.records.running import run_script
from shared.lab.records.scripts import ROOT
from shared.lab.records.stored import TINY_MEASURED

KEPT = (
    "script technique model image_px max_length pretrained dataset device world_size batch_size "
    "micro_batch_size steps load train cost bound test_accuracy versions "
    "git_commit command date"
).split()
# The question, the command, the options of the answer, and the reason.
PARTS = re.compile(
    r".*?\n(.*?)```bash\n(.*?)\n```\n.*?<!-- generated: answer (.*?) -->\n.*?<!-- end -->\n"
    r"(.*?)</details>",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Exercise:
    """An exercise of a lesson page."""

    folder: str
    number: int  # counted from 1 on each page
    question: str  # Markdown, like the reason
    command: str  # the exercise asks about the last record that it makes
    reason: str
    against: str  # a script, in the same output or else in the stored records; or another command
    phase: str = "train"  # or "load"
    memory: tuple = ("device",)  # which peaks are compared: device, host or both


def of_page(folder):
    """Return the exercises on the page of a stage's folder."""
    rest = (ROOT / folder / "README.md").read_text().partition("\n## Try it\n")[2]
    section = rest.partition("\n## ")[0]
    exercises = []
    for number, block in enumerate(section.split("\n### Exercise ")[1:], 1):
        question, command, marker, reason = map(str.strip, PARTS.match(block).groups())
        options = dict(option.split("=", 1) for option in shlex.split(marker))
        memory = tuple(options.pop("memory", "device").split(","))
        entry = Exercise(folder, number, question, command, reason, memory=memory, **options)
        exercises.append(entry)
    return exercises


def every():
    """Return the exercises of all pages."""
    return [exercise for folder in scripts.folders() for exercise in of_page(folder)]


def is_prediction(command):
    """Return whether a command predicts; otherwise it runs a script."""
    return shlex.split(command)[1:3] == ["-m", "shared", "predict"]


def commands(exercise):
    """Return the commands of an exercise: its own, and the one to compare with, if any."""
    other = exercise.against
    return [exercise.command, *([other] if other.startswith("python ") else [])]


def predictions(asked):
    """Predict what commands ask for, as the commands would: {command: list of records}."""
    wanted = {}
    for command in asked:
        args = predictor.parse(shlex.split(command)[3:])
        wanted[command] = predictor.wanted(args)
    jobs = list(dict.fromkeys(job for those in wanted.values() for job in those))
    made = dict(zip(jobs, run_jobs([(predict, *job) for job in jobs])))
    return {
        command: [{**made[job], "command": command} for job in those]
        for command, those in wanted.items()
    }


def run_scripts(asked, folder):
    """Run scripts without a GPU, two at a time, as for the stored ladder: {command: [record]}."""

    def train(command):
        file, *options = shlex.split(command)[1:]
        log = folder / f"{asked.index(command)}.log"
        record, last = run_script(file.removesuffix(".py"), options, log)
        if not record:
            raise UserError(f"{command} failed: {last}")
        print(f"{command}: done", flush=True)
        return [{**record, "command": command}]

    alone = mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    with alone, ThreadPoolExecutor(2) as pool:
        return dict(zip(asked, pool.map(train, asked)))


def compared(exercise, printed):
    """Return the two records that an exercise compares: its command's last, and another one.

    The other one is of the script `against`, in the same output or else in the stored records; or
    the last one of a second command. printed is {command: list of records}.
    """
    *others, record = printed[exercise.command]
    if exercise.against in printed:
        return record, printed[exercise.against][-1]
    predicted = is_prediction(exercise.command)
    of_stages = stored.predicted(stored.STAGES) if predicted else read(TINY_MEASURED)[0]
    return record, next(r for r in [*others, *of_stages] if r["script"] == exercise.against)


def kept(record):
    """Return the fields of a record that an answer needs."""
    part = {key: record[key] for key in KEPT if key in record}
    return {**part, "command": record.get("ladder") or record["command"]}


def to_store(printed):
    """Return the entries to store for the exercises; printed is {command: records}."""
    entries = []
    for e in (e for e in every() if e.command in printed):
        record, against = map(kept, compared(e, printed))
        entry = {"folder": e.folder, "number": e.number, "command": e.command}
        entries.append({**entry, "record": record, "against": against})
    return entries


def stored_entries():
    """Return the stored entries, {(folder, number): entry}."""
    return {(e["folder"], e["number"]): e for e in stored.read(stored.EXERCISES)}


def answer(exercise):
    """Return the table of an answer and the origin of its figures, both in Markdown."""
    entry = stored_entries()[exercise.folder, exercise.number]
    pair = [entry["record"], entry["against"]]
    return exercise_answers.text(exercise, *pair), origin(pair, stored.EXERCISES)


def part(folder, number, **_):
    """Return the generated part of an exercise."""
    return answer(of_page(folder.name)[number - 1])[0]


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    asked = list(dict.fromkeys(command for e in every() for command in commands(e)))
    printed = predictions([command for command in asked if is_prediction(command)])
    with tempfile.TemporaryDirectory() as folder:
        scripts_to_run = [command for command in asked if not is_prediction(command)]
        printed.update(run_scripts(scripts_to_run, Path(folder)))
    now = to_store(printed)
    stored.write(stored.EXERCISES, now)
    print(f"{stored.EXERCISES.relative_to(ROOT)}: {len(now)} answers")


if __name__ == "__main__":
    main()
