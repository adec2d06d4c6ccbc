"""Promise: the answers to the exercises are what their commands print, and the words in them follow from the figures."""

import copy
import re

import pytest
from conftest import ROOT, arguments

from shared import UserError, answers, cli, exercises, lessons, stages, workers
from shared.exercises import EXERCISES
from shared.metrics import LEDGER_UPDATES

IDS = [f"{e.stage}-{e.number}" for e in EXERCISES]


@pytest.fixture(scope="module")
def entries(trained):
    """What the commands give today, in the form of the file."""
    asked = [command for e in EXERCISES for command in exercises.commands(e)]
    printed = exercises.predictions([command for command in asked if exercises.is_prediction(command)])
    printed.update({command: records for command, (_, records) in trained.items() if records})
    printed.update(as_if_trained([command for command in asked if command not in printed]))
    return {(e["stage"], e["number"]): e for e in exercises.stored(printed)}


def as_if_trained(asked):
    """Simulates what trainings on a CPU hold; that this is what they do hold, to the byte, test_predict.py shows.

    Args:
        asked: commands, such as "python 05_grad_accum/train.py --max-steps 1".

    Returns:
        {command: list of one record}, with the accuracy that is stored.
    """
    jobs, stored = [], {e["command"]: e["record"] for e in exercises.read().values()}
    measured = {stages.run_of(r): r for r in stages.records(exercises.MEASURED)[0]}
    for command in asked:
        script, *options = arguments(command)
        run = next(run for run in stages.runs(stages.names()) if stages.path(run) == ROOT / script)
        wanted = stages.asked_of_cli(stages.load(run))
        args = cli.parse(stages.path(run), options, **wanted)  # a mistake in a command ends here
        shapes = measured[run]["input_shapes"] if wanted["task"].UNIT == "texts" else None  # lengths of the first batches
        devices = args.devices if wanted["devices"] > 1 else None
        jobs.append(("simulation", "predict", run, workers.wanted("cpu", args.preset, args.model, devices=devices, updates=min(LEDGER_UPDATES, args.max_steps), input_shapes=shapes)))
    return {command: [{**r, "command": command, "test_accuracy": stored[command]["test_accuracy"]}] for command, r in zip(asked, workers.run(jobs))}


def test_every_stage_has_two_one_to_measure_and_one_to_predict():
    for stage in stages.names():
        own = [e for e in EXERCISES if e.stage == stage]
        assert [e.number for e in own] == [1, 2]
        assert [exercises.is_prediction(e.command) for e in own] == [False, True]
        assert all(e.command in (ROOT / stage / "README.md").read_text() for e in own)
    assert all(command.startswith("python ") for e in EXERCISES for command in exercises.commands(e))


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_the_stored_answer_is_what_the_commands_give_today(entries, exercise):
    key = exercise.stage, exercise.number
    assert exercises.differences(exercises.read()[key], entries[key]) == []


def test_a_changed_figure_is_noticed():
    for then in exercises.read().values():
        for which in ("record", "against"):
            now = copy.deepcopy(then)
            now[which]["train"]["breakdown_gb"]["parameters"] = now[which]["train"]["breakdown_gb"].get("parameters", 0) + 4e-9
            assert len(exercises.differences(then, now)) == 1
            now[which]["versions"]["torch"] = "another"
            assert exercises.differences(then, now) == []  # not to the byte
            now[which]["train"]["device_peak_gb"] *= 1.06
            assert len(exercises.differences(then, now)) == 1
    other = copy.deepcopy(then)
    other["command"] += " --devices 2"
    assert exercises.differences(then, other)


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_the_answer_is_computed_and_only_there(exercise):
    entry = exercises.read()[exercise.stage, exercise.number]
    found = answers.answer(entry["record"], entry["against"], exercise.phase, exercise.memory)
    for total, place in zip(found.totals, exercise.memory):  # all that is shown adds up to what is shown below
        parts = [row for row in found.rows if len(exercise.memory) == 1 or row.name.endswith(place)]
        assert sum(row.now_gb for row in parts) == pytest.approx(total.now_gb, abs=5e-5 * len(parts) + 5e-5)
        assert sum(row.before_gb for row in parts) == pytest.approx(total.before_gb, abs=5e-5 * len(parts) + 5e-5)
    shown = exercises.all_of(exercise.stage)[exercise.number - 1]
    assert shown.question == exercise.question and shown.command == exercise.command
    figures = set(re.findall(r"[\d.]+ [GM]B|[\d.]+%", shown.answer))
    assert figures
    for text in (exercise.question, exercise.why):
        assert not re.search(r"\d ?[GMk]B\b|\d ?%", text)
        assert not any(figure in text for figure in figures)


def test_words_follow_from_figures():
    def words(before, now):
        return answers.Row("", before, now).words

    assert words(1, 1) == "the same" and words(1, 1.001) == "nearly the same"
    assert words(1, 2.001) == "doubles" and words(1, 0.5) == "halves" and words(4, 1) == "falls to a quarter"
    assert words(1, 0.26) == "falls to 26%" and words(1, 1.5) == "grows by 50%" and words(1, 2.5) == "2.5 times as much"
    assert words(0, 1) == "new" and words(1, 0) == "gone" and words(1, 1e-9) == "hardly any left" and words(0, 1e-9) == "nothing"


def test_accuracies_are_compared_only_after_as_many_updates():
    found = {key: answers.answer(e["record"], e["against"]).test_accuracy for key, e in exercises.read().items()}
    assert [key for key, accuracies in found.items() if accuracies] == [("06_sgd", 1)]
    pretrained, random = found["06_sgd", 1]
    assert random < 0.3 < pretrained - 0.2


def test_an_answer_that_is_not_there_is_told(tmp_path, monkeypatch):
    for text in (None, "", "[]"):
        monkeypatch.setattr(exercises, "FILE", tmp_path / "exercises.json")
        if text is not None:
            exercises.FILE.write_text(text)
        with pytest.raises(UserError, match="01_baseline, exercise 1; python -m shared.exercises writes it"):
            lessons.fill(ROOT / "01_baseline" / "README.md")


def test_a_mistake_is_one_line(capsys):
    with pytest.raises(UserError, match="--chekc"):
        exercises.main(["--chekc"])
