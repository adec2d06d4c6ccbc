"""Promise: the exercises' answers are what their commands print, in words under any version."""

import pytest
from conftest import ROOT, arguments

from shared.lessons import answers, exercises, pages
from shared.metrics import LEDGER_UPDATES
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records import scripts
from shared.records.views import TINY_MEASURED, by_script, read

EXERCISES = exercises.every()
IDS = [f"{e.folder}-{e.number}" for e in EXERCISES]
# Every fourth one is run; `python -m shared.lessons.exercises --check` runs them all.
CHECKED = EXERCISES[::4]


@pytest.fixture(scope="module")
def entries():
    """What the commands give today, in the form of the file."""
    asked = [command for e in CHECKED for command in exercises.commands(e)]
    printed = exercises.predictions([c for c in asked if exercises.is_prediction(c)])
    printed.update(as_if_trained([command for command in asked if command not in printed]))
    return {(e["folder"], e["number"]): e for e in exercises.to_store(printed)}


def as_if_trained(asked):
    """Simulates what trainings on a CPU hold; test_stages.py shows that they do, to the byte.

    Args:
        asked: commands, such as "python 05_grad_accum/train.py --max-steps 1".

    Returns:
        {command: list of one record}, with the accuracy that is stored.
    """
    jobs, stored_records = [], {}
    for entry in exercises.stored_entries().values():
        for record in (entry["record"], entry["against"]):
            stored_records[record["command"]] = record
    measured = by_script(read(TINY_MEASURED)[0])
    for command in asked:
        file, *options = arguments(command)
        script = scripts.get(file.removesuffix(".py"))
        module = script.load()
        micro = getattr(module, "MICRO_BATCH_SIZE", None)
        sizes = {"batch_size": module.BATCH_SIZE, "micro_batch_size": micro}
        # A mistake in a command ends here.
        args = module.cli.parse(script.path, options, devices=module.DEVICES, **sizes)
        of_text = args.task.unit == "texts"
        short = args.max_steps < LEDGER_UPDATES or None  # else the steady state is what counts
        wanted = Wanted(
            "cpu",
            args.preset,
            args.model,
            devices=args.devices if module.DEVICES > 1 else None,
            updates=LEDGER_UPDATES if of_text else short and args.max_steps,
            # the lengths of the first batches:
            input_shapes=measured[script.name]["input_shapes"] if of_text else None,
        )
        jobs.append((predict, script.name, wanted))
    found = {}
    for command, record in zip(asked, run_jobs(jobs)):
        accuracy = stored_records[command]["test_accuracy"]
        found[command] = [{**record, "command": command, "test_accuracy": accuracy}]
    return found


def test_every_stage_has_one_to_measure_and_one_to_predict_some_ask_for_the_price():
    for folder in scripts.folders():
        own = [e for e in EXERCISES if e.folder == folder]
        assert [e.number for e in own] == [1, 2, 3][: len(own)]
        assert [exercises.is_prediction(e.command) for e in own] == [False, True, True][: len(own)]
        price = [e.number for e in own if e.phase == "cost"]
        assert price == ([3] if folder in ("05_grad_accum", "10_offload") else [])
        assert all(e.question and e.reason for e in own)
    assert all(c.startswith("python ") for e in EXERCISES for c in exercises.commands(e))


@pytest.mark.parametrize("exercise", CHECKED, ids=IDS[::4])
def test_the_stored_answer_is_what_the_commands_give_today(entries, exercise):
    """To the byte with the versions that stored it; see answers.differences()."""
    key = exercise.folder, exercise.number
    assert answers.differences(exercises.stored_entries()[key], entries[key]) == []


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_the_table_is_on_the_page_and_adds_up(exercise):
    entry = exercises.stored_entries()[exercise.folder, exercise.number]
    table, _ = exercises.answer(exercise)
    # The table is a part of the page that is generated.
    assert table in pages.fill(ROOT / exercise.folder / "README.md")
    if exercise.phase == "cost":
        return
    found = answers.answer(entry["record"], entry["against"], exercise.phase, exercise.memory)
    assert len(found.totals) == len(exercise.memory)
    for total, place in zip(found.totals, exercise.memory):  # parts add up to what is below them
        parts = [r for r in found.rows if len(exercise.memory) == 1 or r.name.endswith(place)]
        rounded = 5e-5 * len(parts) + 5e-5
        assert sum(r.now_gb for r in parts) == pytest.approx(total.now_gb, abs=rounded)
        assert sum(r.before_gb for r in parts) == pytest.approx(total.before_gb, abs=rounded)


def test_accuracies_are_compared_only_after_as_many_updates():
    found = {}
    for key, entry in exercises.stored_entries().items():
        found[key] = answers.answer(entry["record"], entry["against"]).test_accuracy
    assert [key for key, accuracies in found.items() if accuracies] == [("06_sgd", 1)]
    pretrained, random = found["06_sgd", 1]
    assert random < 0.3 < pretrained - 0.2
