"""Promise: every stage has an exercise to measure and one to predict."""

from shared.lab.records import scripts
from shared.lab.records.exercises import commands, every, is_prediction

EXERCISES = every()


def test_every_stage_has_one_to_measure_and_one_to_predict():
    for folder in scripts.folders():
        own = [e for e in EXERCISES if e.folder == folder]
        assert [(e.number, is_prediction(e.command)) for e in own] == [
            (1, False),
            (2, True),
        ]
        assert all(e.question and e.reason for e in own)
    assert all(c.startswith("python ") for e in EXERCISES for c in commands(e))
