"""Promise: the exercises' answers are what their commands print, and their words follow from it."""

import copy
import re

import pytest
from conftest import ROOT, arguments

from shared.common import scripts
from shared.common.errors import UserError
from shared.lessons import answers, exercises, pages, stored
from shared.metrics import LEDGER_UPDATES
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import predict
from shared.records.record import TINY_MEASURED, by_script, read

EXERCISES = exercises.every()
IDS = [f"{e.folder}-{e.number}" for e in EXERCISES]
# Every fourth one is run; `python -m shared.lessons.exercises --check` runs them all.
CHECKED = EXERCISES[::4]


@pytest.fixture(scope="module")
def entries(trained):
    """What the commands give today, in the form of the file."""
    asked = [command for e in CHECKED for command in exercises.commands(e)]
    printed = exercises.predictions([c for c in asked if exercises.is_prediction(c)])
    printed.update({command: records for command, (_, records) in trained.items() if records})
    printed.update(as_if_trained([command for command in asked if command not in printed]))
    return {(e["folder"], e["number"]): e for e in exercises.to_store(printed)}


def as_if_trained(asked):
    """Simulates what trainings on a CPU hold; test_predict.py shows that they do, to the byte.

    Args:
        asked: commands, such as "python 05_grad_accum/train.py --max-steps 1".

    Returns:
        {command: list of one record}, with the accuracy that is stored.
    """
    jobs, stored_records = [], {}
    for entry in exercises.stored_entries().values():
        stored_records[entry["command"]] = entry["record"]
    measured = by_script(read(TINY_MEASURED)[0])
    for command in asked:
        file, *options = arguments(command)
        script = scripts.get(file.removesuffix(".py"))
        module = script.load()
        args = module.cli.parse(  # a mistake in a command ends here
            script.path,
            options,
            batch_size=module.BATCH_SIZE,
            micro_batch_size=getattr(module, "MICRO_BATCH_SIZE", None),
            devices=module.DEVICES,
        )
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
        assert own == exercises.of_page(folder)
        assert [e.number for e in own] == [1, 2, 3][: len(own)]
        assert [exercises.is_prediction(e.command) for e in own] == [False, True, True][: len(own)]
        price = [e.number for e in own if e.phase == "cost"]
        assert price == ([3] if folder in ("05_grad_accum", "10_offload") else [])
        assert all(e.command in (ROOT / folder / "README.md").read_text() for e in own)
        assert all(e.question and e.reason for e in own)
    assert all(c.startswith("python ") for e in EXERCISES for c in exercises.commands(e))


@pytest.mark.parametrize("exercise", CHECKED, ids=IDS[::4])
def test_the_stored_answer_is_what_the_commands_give_today(entries, exercise):
    key = exercise.folder, exercise.number
    assert answers.differences(exercises.stored_entries()[key], entries[key]) == []


def test_a_changed_figure_is_noticed():
    for then in exercises.stored_entries().values():
        for which in ("record", "against"):
            now = copy.deepcopy(then)
            parts = now[which]["train"]["breakdown_gb"]
            parts["parameters"] = parts.get("parameters", 0) + 4e-9
            assert len(answers.differences(then, now)) == 1
            now[which]["versions"]["torch"] = "another"
            assert answers.differences(then, now) == []  # not to the byte
            now[which]["train"]["device_peak_gb"] *= 1.02 * (1 + answers.TOLERANCE)
            assert len(answers.differences(then, now)) == 1
            now = copy.deepcopy(then)
            now[which]["test_accuracy"] = 2.0
            assert len(answers.differences(then, now)) == 1
    other = copy.deepcopy(then)
    other["command"] += " --devices 2"
    assert answers.differences(then, other)


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_the_answer_is_computed_and_only_there(exercise):
    entry = exercises.stored_entries()[exercise.folder, exercise.number]
    table, _ = exercises.answer(exercise)
    # The table is a part of the page that is generated.
    assert table in pages.fill(ROOT / exercise.folder / "README.md")
    figures = set(re.findall(r"[\d.]+ (?:[GM]B|ms)|[\d.]+%", table))
    assert figures
    for text in (exercise.question, exercise.reason):
        assert not re.search(r"\d ?[GMk]B\b|\d ?%|\d ms\b", text)
    if exercise.phase == "cost":
        return
    found = answers.answer(entry["record"], entry["against"], exercise.phase, exercise.memory)
    assert len(found.totals) == len(exercise.memory)
    for total, place in zip(found.totals, exercise.memory):  # parts add up to what is below them
        parts = [r for r in found.rows if len(exercise.memory) == 1 or r.name.endswith(place)]
        rounded = 5e-5 * len(parts) + 5e-5
        assert sum(r.now_gb for r in parts) == pytest.approx(total.now_gb, abs=rounded)
        assert sum(r.before_gb for r in parts) == pytest.approx(total.before_gb, abs=rounded)
        assert not any(figure in text for figure in figures)


def test_words_follow_from_figures():
    for before, now, words in (
        (1, 1, "the same"),
        (1, 1.001, "nearly the same"),
        (1, 2.001, "doubles"),
        (1, 0.5, "halves"),
        (4, 1, "falls to a quarter"),
        (1, 0.26, "falls to 26%"),
        (1, 1.5, "grows by 50%"),
        (1, 2.5, "2.5 times as much"),
        (0, 1, "new"),
        (1, 0, "gone"),
        (1, 1e-9, "hardly any left"),
        (0, 1e-9, "nothing"),
    ):
        assert answers.Row("", before, now).words == words


def test_accuracies_are_compared_only_after_as_many_updates():
    found = {}
    for key, entry in exercises.stored_entries().items():
        found[key] = answers.answer(entry["record"], entry["against"]).test_accuracy
    assert [key for key, accuracies in found.items() if accuracies] == [("06_sgd", 1)]
    pretrained, random = found["06_sgd", 1]
    assert random < 0.3 < pretrained - 0.2


def test_an_answer_that_is_not_there_is_told(tmp_path, monkeypatch):
    what = "01_baseline, exercise 1; python -m shared.lessons.exercises writes it"
    for text in (None, "", "[]"):
        monkeypatch.setattr(stored, "EXERCISES", tmp_path / "exercises.json")
        if text is not None:
            stored.EXERCISES.write_text(text)
        with pytest.raises(UserError, match=what):
            pages.fill(ROOT / "01_baseline" / "README.md")


@pytest.mark.parametrize("part", ["```bash\n", "<!-- generated: answer ", "</details>"])
def test_an_exercise_that_lacks_a_part_is_told(tmp_path, monkeypatch, part):
    folder = tmp_path / "06_sgd"
    folder.mkdir()
    before, heading, rest = (ROOT / "06_sgd" / "README.md").read_text().partition("## Try it")
    (folder / "README.md").write_text(before + heading + rest.replace(part, ""))
    monkeypatch.setattr(exercises, "ROOT", tmp_path)
    with pytest.raises(UserError, match="06_sgd/README.md, exercise 1: it needs a question, a com"):
        exercises.of_page("06_sgd")


def test_a_mistake_is_one_line():
    with pytest.raises(UserError, match="--chekc"):
        exercises.main(["--chekc"])
