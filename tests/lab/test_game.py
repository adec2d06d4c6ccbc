"""Promise: the game "Make it fit" hands out its scripts, and refuses any different training."""

import dataclasses

import pytest
from helpers.refusals import refused

from shared.lab.game import command, levels
from shared.lab.grading import aspects
from shared.lab.grading.sentences import first_wrong
from shared.lab.grading.source import parts
from shared.lab.records import scripts
from shared.lab.records.markdown import num_changed
from shared.run.errors import UserError


@pytest.mark.parametrize("level", levels.LEVELS, ids=lambda level: level.title)
def test_a_level_is_a_stage_with_few_changes(level, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command.main([str(level.number)])
    (file,) = tmp_path.iterdir()
    assert file.name in capsys.readouterr().out
    assert levels.of_file(file, parts(file).docstring) == (level, level.card)
    stage = parts(scripts.get(level.script).path).lines
    # One is the line that finds shared/, and one the import that it needed.
    assert num_changed(stage, parts(file).lines) <= 7
    preset = scripts.get(level.script).load().TASK.presets["full"]["model"]
    assert level.setting(level.card).startswith(level.model or preset)
    assert len(level.hints) == 3 and level.solutions and len(level.tries) >= 3
    for change in (*level.solutions, *level.tries):
        assert level.text(change) != level.text()
    with pytest.raises(UserError, match=f"{file.name} is there"):
        command.main([str(level.number)])


def test_hints_come_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(4):
        command.main(["2", "--hint"])
    command.main(["2", "--hint", "1"])
    first = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    with pytest.raises(UserError, match="--hint 99: there are 3 hints"):
        command.main(["2", "--hint", "99"])
    all_three = [f"hint {n} of 3" for n in (1, 2, 3)]
    assert first == [*all_three, "there are 3 hints; solutions", "hint 1 of 3"]


HANDED = levels.get("3").text()
MISTAKES = [
    ("7", None, "there is no level 7; there are 1 to 6"),
    ("fit_3.py --card t4", None, "--card begins a level, by its number"),
    ("fit_3.txt", "", "fit_3.txt is neither a level nor a .py file"),
    ("mine.py", "x = 1", "mine.py: of which level?"),
    ("fit_3.py", "x = (", "fit_3.py, line 1: SyntaxError: '(' was never closed"),
    ("fit_3.py", '"""Level 1 on t5, x."""', "fit_3.py: there is no card t5"),
]


@pytest.mark.parametrize("what, text, line", MISTAKES)
def test_a_mistake_in_using_it_is_one_line(what, text, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / what).write_text(text)
    refused(line, command.main, what.split())


LEVEL = aspects.Training(16, "bf16-true", 2.3, 2.1, 1000, "SGD", (1.0, 0.9), (2.3, 2.1))
# The changes, and the beginning of the reason, None if the training is the same.
TRAININGS = [
    ({"last_loss": 2.1003, "optimizer": "FusedSGD"}, None),
    ({"gradient_norms": (1.05, 0.9)}, None),
    ({"batch_size": 8, "num_trained": 10}, "8 images per update instead of 16"),
    ({"num_trained": 10}, "in the small model, 10 instead of 1,000 weights are trained"),
    ({"precision": "32-true", "last_loss": 2.0}, "precision 32-true instead of bf16-true"),
    ({"gradient_norms": (1.0,)}, "1 steps of the optimizer instead of 2"),
    ({"optimizer": "Adam", "last_loss": 2.0}, "Adam instead of SGD"),
    (
        {"gradient_norms": (1.0, 1.8), "last_loss": 2.0},
        "gradients: in update 2, their norm is 2.00",
    ),
    ({"first_loss": 2.2}, "losses 2.2000 to 2.1000 instead of 2.3000 to 2.1000"),
    ({"last_loss": float("nan")}, "losses 2.3000 to nan"),
    ({"curve": ()}, "curve: its values are none instead of 2.3000, 2.1000"),
]


@pytest.mark.parametrize("changes, reason", TRAININGS, ids=lambda value: str(value)[:30])
def test_the_first_difference_of_a_training_is_the_reason(changes, reason):
    refused = first_wrong(aspects.training(dataclasses.replace(LEVEL, **changes), LEVEL))
    assert (refused is None) == (reason is None) and (refused or "").startswith(reason or "")


@pytest.mark.parametrize(
    "times, on_host, said",
    [
        (
            3.1,
            False,
            "6.2 ms per image, 3.1 times what it takes with room for everything; the goal",
        ),
        (3.0, False, None),
        (1.0, True, "the host does a part of the update"),
    ],
)
def test_a_level_asks_for_time(times, on_host, said):
    figures = {"ms": 2 * times, "on_host": on_host}
    reason = first_wrong(aspects.pace(figures, {"ms": 2}, 3))
    assert (reason is None) == (said is None) and (said or "") in (reason or "")
    assert not aspects.pace(figures, {"ms": 2}, levels.get("1").times_as_long)


def test_a_record_of_something_else_is_not_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fit.json").write_text("[1]")
    with pytest.raises(UserError, match="fit.json is not a record of this game"):
        command.main([])
    assert (tmp_path / "fit.json").read_text() == "[1]"
