"""Promise: every level of "Make it fit" is won as its teacher's sheet says, and in no other way."""

import json

import pytest

from shared.lab.game import command, judge, levels, sheet
from shared.lab.records import stored
from shared.run.errors import UserError

HANDED = levels.get("3").text()
FAILING = [  # line 42 is that of the step
    (
        HANDED.replace("return meter", "meter"),
        "main\\(\\) has to return what meter.test\\(\\) returns",
    ),
    (HANDED.replace("    optimizer.step()", "    exit()"), "line 42: it ended itself, with exit"),
    (HANDED.replace("    optimizer.step()", "    while True: pass"), "is there a loop without end"),
    ('"""Level 3 on rtx3060, empty."""', "has no attribute 'DEVICES'"),
]


# As the sheet's command stored them; test_records_of_today.py judges three of them anew.
VERDICTS = [
    (level, change, verdict)
    for (level, _, change), verdict in zip(
        sheet.everything(), stored.read(stored.GAME), strict=True
    )
]


def test_what_is_handed_out_runs_out_of_memory_or_is_slow():
    starts = [verdict for _, change, verdict in VERDICTS if not change]
    assert len(starts) == len(levels.LEVELS)
    for level, verdict in zip(levels.LEVELS, starts):
        if level.times_as_long:
            assert verdict["slow"] and verdict["needs_gb"] < verdict["card_gb"], verdict
            continue
        assert verdict["needs_gb"] > verdict["card_gb"] and not verdict["refused"], verdict
        code, asked, *_ = verdict["printed"][1:]
        assert code.startswith("out of memory in update ") and asked.startswith(
            "PyTorch asked for "
        )


def test_solutions_fit_and_other_ways_do_not():
    for level, change, verdict in VERDICTS:
        if change:
            said = "\n".join(verdict["printed"][1:])
            fits = change in level.solutions
            assert said.startswith("fits") == fits and change.outcome in said, (change.title, said)
            assert verdict["lines"]


@pytest.mark.parametrize("text, said", FAILING)
def test_a_script_that_fails(text, said, tmp_path, monkeypatch):
    (tmp_path / "fit_3.py").write_text(text)
    monkeypatch.setattr(judge, "LIMIT", 3 if "without end" in said else 60)
    with pytest.raises(UserError, match=said):
        command.main([str(tmp_path / "fit_3.py")])


def test_ones_best_is_kept(tmp_path, monkeypatch, capsys):
    level, file = levels.get("2"), tmp_path / "fit_2.py"
    found = {change: verdict for of, change, verdict in VERDICTS if of == level}
    best = []
    for change in (*level.solutions, None):
        file.write_text(level.text(change))
        with monkeypatch.context() as patch:
            if change is level.solutions[1]:  # as the sheet says; the others are judged here
                patch.setattr(judge, "judge", lambda plays: [found[level.solutions[1]]])
            assert command.main([str(file)]) == (0 if change else 1)
        best.append(json.loads((tmp_path / "fit.json").read_text())["2"]["best"][level.card])
    assert [each["lines"] for each in best] == [2, 1, 1] and best[2] == best[1]
    printed, begun = capsys.readouterr()
    # Each run says that it begins; without room on the card, the small model is not run.
    runs = "1 of 4", "2 of 4", "3 of 4", "4 of 4", "1 of 4", file.name, "2 of 2"
    assert [line.partition(":")[0] for line in begun.splitlines()] == [*runs]
    assert f"{file.name}: out of memory in update 2" in begun
    assert printed.count("level 2 is done") == 2 and "next: python -m shared game 3" in printed


@pytest.mark.parametrize(
    "options, which, said",
    [
        ("2 --card a100", 1, "fits on A100 80 GB as it is"),
        ("2 --card rtx3050-laptop", 0, "no solution"),
    ],
)
def test_a_card_on_which_a_level_is_no_game(options, which, said, tmp_path, monkeypatch):
    """Verdicts of its own card: the first is of what is handed out, the second fits."""
    found = [verdict for of, _, verdict in VERDICTS if of.number == 2]
    monkeypatch.setattr(sheet, "verdicts", lambda asked: [found[which]] * len(asked))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        command.main(options.split())
    assert not [*tmp_path.iterdir()]


def test_another_batch_is_refused(tmp_path, capsys):
    file = tmp_path / "fit_3.py"
    file.write_text(HANDED.replace("BATCH_SIZE = 64", "BATCH_SIZE = 32"))
    assert command.main([str(file)]) == 1
    printed = capsys.readouterr().out
    assert "refused: 32 images per update instead of 64: the batch has to stay" in printed
    assert [*tmp_path.iterdir()] == [file]
