"""Promise: the answers of the exercises are on the pages, and add up."""

import pytest
from conftest import ROOT

from shared.lab.lessons import exercises, pages
from shared.lab.records import scripts
from shared.lab.records.exercises import commands, every, is_prediction

EXERCISES = every()
IDS = [f"{e.folder}-{e.number}" for e in EXERCISES]


def test_every_stage_has_one_to_measure_and_one_to_predict():
    for folder in scripts.folders():
        own = [e for e in EXERCISES if e.folder == folder]
        assert [(e.number, is_prediction(e.command)) for e in own] == [
            (1, False),
            (2, True),
        ]
        assert all(e.question and e.reason for e in own)
    assert all(c.startswith("python ") for e in EXERCISES for c in commands(e))


@pytest.mark.parametrize("exercise", EXERCISES, ids=IDS)
def test_the_table_is_on_the_page_and_adds_up(exercise):
    entry = exercises.stored_entries()[exercise.folder, exercise.number]
    assert entry["command"] == exercise.command
    table = exercises.answer(exercise)
    # The table is in a generated part of the page.
    assert table in pages.fill(ROOT / exercise.folder / "README.md")
    for record in (entry["record"], entry["against"]):
        for place in exercise.memory:
            kind = "breakdown_gb" if place == "device" else "host_breakdown_gb"
            held = record[exercise.phase][kind]
            assert sum(held.values()) == pytest.approx(record[exercise.phase][f"{place}_peak_gb"])


def test_accuracies_are_compared_only_after_as_many_updates():
    tables = {(e.folder, e.number): exercises.answer(e) for e in EXERCISES}
    assert [key for key, table in tables.items() if "test accuracy" in table] == [("06_sgd", 1)]
    entry = exercises.stored_entries()["06_sgd", 1]
    random, pretrained = sorted(entry[which]["test_accuracy"] for which in ("record", "against"))
    assert random < 0.3 < pretrained - 0.2
