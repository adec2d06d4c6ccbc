"""Answers of the exercises: run their commands, scripts and predictions, and store the records."""

import os
import shlex
import tempfile
from pathlib import Path

import torch

from shared.lab.evidence.by_command import predictions
from shared.lab.predict.jobs import run_jobs
from shared.lab.records import stored
from shared.lab.records.exercises import commands, every, is_prediction
from shared.lab.records.reading import read
from shared.lab.records.running import run_python
from shared.run.cli import Parser
from shared.run.record import ROOT

# The fields of a record that an answer needs.
KEPT = (
    "script technique model image_px max_length pretrained dataset device world_size batch_size "
    "micro_batch_size steps load train cost test_accuracy versions "
    "git_commit command date"
).split()


def run(command):
    """Run `python COMMAND`, which measures a script, in this process; return its record.

    The process has no GPU.
    """
    # One thread each: the sums, and so the losses, are those of the stored ladder.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "record.jsonl")
        run_python([*shlex.split(command)[1:], "--record", str(file)])
        (record,), _ = read(file)
    return {**record, "command": command}


def compared(exercise, printed):
    """Return the two records that an exercise compares: the last of its command, and a reference.

    The reference is of the script `against`, in the same output or else in the stored records; or
    the last record of a second command. printed is {command: list of records}.
    """
    *before, record = printed[exercise.command]
    if exercise.against in printed:
        return record, printed[exercise.against][-1]
    if is_prediction(exercise.command):
        stages = stored.predicted(stored.STAGES)
    else:
        stages = stored.read(stored.TINY_MEASURED)
    # The command's own records come first, since they have its settings.
    return record, next(r for r in [*before, *stages] if r["script"] == exercise.against)


def shortened(record):
    """Return the fields of a record that an answer needs."""
    fields = {key: record[key] for key in KEPT if key in record}
    # A stage of the stored ladder was run by the ladder's command, which is what a reader repeats.
    return {**fields, "command": record.get("ladder") or record["command"]}


def to_store(printed):
    """Return the entries to store for the exercises; printed is {command: records}."""
    entries = []
    for exercise in every():
        if exercise.command not in printed:
            continue
        record, against = compared(exercise, printed)
        entry = {"folder": exercise.folder, "number": exercise.number, "command": exercise.command}
        entry |= {"record": shortened(record), "against": shortened(against)}
        entries.append(entry)
    return entries


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    to_run = list(dict.fromkeys(command for e in every() for command in commands(e)))
    printed = predictions([command for command in to_run if is_prediction(command)])
    measured = [command for command in to_run if not is_prediction(command)]
    records = run_jobs([(run, command) for command in measured], emulated=False)
    printed |= {command: [record] for command, record in zip(measured, records)}
    entries = to_store(printed)
    stored.write(stored.EXERCISES, entries)
    print(f"{stored.EXERCISES.relative_to(ROOT)}: {len(entries)} answers")
