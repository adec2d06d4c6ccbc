"""Promise: `records road` changes the records of one side road, and refuses other scripts.

python -m pytest -q tests/lab/test_road.py
"""

import functools
import json

import pytest
from helpers.refusals import refused

from shared.lab.lessons import road
from shared.lab.records import stored
from shared.lab.records.reading import by_script
from shared.run import record

NAME = "06_sgd/ema"


@pytest.fixture
def predictions(tmp_path, monkeypatch):
    """A copy of the file of predictions, which takes its place."""
    file = tmp_path / "predicted.jsonl"
    file.write_text(stored.PREDICTED.read_text())
    monkeypatch.setattr(stored, "PREDICTED", file)
    return file


def without(text, name):
    """Return lines of records without those of a script."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if json.loads(line)["script"] != name)


def test_a_prediction_is_put_in_its_place(predictions):
    records = stored.predicted(stored.SIDE_ROADS)
    predictions.write_text(without(predictions.read_text(), NAME))
    assert len(stored.predicted(stored.SIDE_ROADS)) == len(records) - 1
    stored.insert(stored.PREDICTED, stored.prediction(stored.SIDE_ROADS, by_script(records)[NAME]))
    assert stored.predicted(stored.SIDE_ROADS) == records


def test_a_measurement_is_put_in_its_place(tmp_path):
    whole, file = stored.TINY_SIDE_ROADS.read_text(), tmp_path / "tiny.jsonl"
    measured = stored.measurements(stored.TINY_SIDE_ROADS)[NAME]
    for text in (whole, without(whole, NAME)):
        file.write_text(text)
        stored.insert(file, measured)
        assert file.read_text() == whole


def test_the_last_measurement_counts(tmp_path, monkeypatch):
    """The ladder appends, so the file also has the measurements of earlier calls."""
    records = stored.read(stored.TINY_SIDE_ROADS)[:2]
    add = functools.partial(record.append, tmp_path / road.OUT / "ladder.jsonl")
    monkeypatch.setattr(road, "ROOT", tmp_path)
    for new in records:
        monkeypatch.setattr(road.ladder, "main", lambda argv, new=new: add(new))
        assert road.measurement(new["script"]) == new


def test_each_road_is_predicted_once_in_a_group():
    names = [job[1].name for job in road.predicted.jobs(stored.SIDE_ROADS)]
    assert NAME in names and len(names) == len({*names})


@pytest.mark.parametrize(
    "name, commit, line",
    [
        ("06_sgd/none", "0" * 12, "there is no script 06_sgd/none"),
        ("06_sgd/train", "0" * 12, "06_sgd/train is a stage"),
        (NAME, "0" * 12 + "-dirty", "commit all changes first"),
    ],
)
def test_a_mistake_is_one_line(name, commit, line, monkeypatch):
    monkeypatch.setattr(record, "git_commit", lambda: commit)
    refused(line, road.checked, name)


def test_a_docstring_without_losses_is_named(monkeypatch):
    script = road.scripts.get(NAME)
    docstring = script.docstring.replace("Losses:", "Loss:")
    incomplete = road.scripts.dataclasses.replace(script, docstring=docstring)
    monkeypatch.setattr(road.scripts, "get", lambda name: incomplete)
    refused("06_sgd/ema.py: its docstring needs a line 'Losses: ", road.checked, NAME)
