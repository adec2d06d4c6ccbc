"""Promise: records are what their commands make today: three of each group, others each day.

Of groups of large models, which take minutes, it chooses one.
"""

import json

import pytest
from conftest import run
from helpers.emulated import NEEDS
from helpers.today import DAY, some
from helpers.versions import made_here

from shared.lab.evidence import exercises, groups, predicted
from shared.lab.evidence.by_command import predictions
from shared.lab.game import sheet
from shared.lab.lessons.exercises import stored_entries
from shared.lab.predict.jobs import run_jobs
from shared.lab.records import reading, scripts, stored
from shared.lab.records.exercises import commands, every, is_prediction

LARGE = "scale", "long_context"
GROUPS = {*groups.every()} - {*LARGE} | {*some("large", LARGE, 1)}
# Fields that are of a run, or of the computer, and not of the script; and emulated times, which
# the emulator's own tests compare with measured ones.
OF_RUN = "seconds here_gb git_commit date command versions time".split()


def chosen(name, records):
    """Return three of a group's records, or fewer, with their numbers: [(number, record)]."""
    return some(name, enumerate(records), 1 if name in LARGE else 3)


def lasting(record):
    """Return a record as it is stored, without what differs from run to run."""
    kept = {key: value for key, value in record.items() if key not in OF_RUN and value is not None}
    for phase in {"load", "train"} & kept.keys():
        # A few bytes on the host come and go, so its peak is compared to the MB.
        figures = {key: value for key, value in kept[phase].items() if "host" not in key}
        kept[phase] = {**figures, "host_gb": round(kept[phase]["host_peak_gb"] or 0, 3)}
    return json.loads(json.dumps(stored.rounded(kept)))


def assert_as_stored(name, then, now):
    """Assert that a record is the stored one; with other versions, that weights are the same."""
    if not made_here(then):
        gb = [r["train"]["breakdown_gb"].get("parameters") for r in (then, now)]
        assert gb[0] == pytest.approx(gb[1]), f"{name}, of {DAY}, with other versions"
        return
    then, now = lasting(then), lasting(now)
    different = [key for key in then if then[key] != now.get(key)]  # there may be new fields
    said = "; ".join(f"{key} was {then[key]}, is {now.get(key)}" for key in different)
    assert not said, f"{name}, of {DAY}: {said[:2000]}"


@NEEDS
@pytest.mark.parametrize("name", predicted.GROUPS)
def test_predictions(name):
    # A road that came later has a place of its own in the file.
    records = sorted(stored.predicted(name), key=lambda r: r["script"])
    jobs = sorted(predicted.jobs(name), key=lambda job: job[1].name)
    assert len(jobs) == len(records)
    asked = chosen(name, records)
    for (n, then), now in zip(asked, run_jobs([jobs[n] for n, _ in asked])):
        # A stage's timeline has the record. Autocast frees its copies of weights in any order.
        assert_as_stored(f"{name}, record {n}", then, now.get("record", now))


@NEEDS
@pytest.mark.parametrize("name", sorted(GROUPS))
def test_runs_of_cases(name):
    group = groups.every()[name]
    asked = chosen(name, group.records)
    made = run_jobs([group.jobs[n] for n, _ in asked], group.emulated, group.workers)
    for (n, (case, then)), now in zip(asked, made):
        title = f"{name}, record {n}"
        if "train_seconds" not in then:
            assert_as_stored(title, then, now)
        elif made_here(then):  # measured here: the computer decides about the last bits
            assert {**now["train"], **then["train"]} == now["train"], f"{title}, of {DAY}"
            changed = pytest.approx(then.get("changed"), abs=0.05)
            assert now.get("changed") == changed, f"{title}, of {DAY}"


@NEEDS
def test_figures_of_misconceptions():
    by_command = reading.grouped(stored.read(stored.MISCONCEPTIONS), lambda r: r["command"])
    asked = dict(then for _, then in chosen("misconceptions", by_command.items()))
    for command, printed in predictions(asked).items():
        for then, now in zip(asked[command], printed, strict=True):
            assert_as_stored(command, then, now)


@NEEDS
def test_answers_of_exercises():
    asked = [e for _, e in chosen("exercises", every())]
    words = dict.fromkeys(command for e in asked for command in commands(e))
    printed = predictions([command for command in words if is_prediction(command)])
    measured = [command for command in words if not is_prediction(command)]
    records = run_jobs([(exercises.run, command) for command in measured], emulated=False)
    printed |= {command: [record] for command, record in zip(measured, records)}
    for entry in exercises.to_store(printed):
        key = entry["folder"], entry["number"]
        then, now = stored_entries()[key]["record"], entry["record"]
        if made_here(then):
            assert {**now["train"], **then["train"]} == now["train"], f"{key}, of {DAY}"


def test_every_stage_has_an_exercise_to_measure_and_one_to_predict():
    for folder in scripts.folders():
        own = [e for e in every() if e.folder == folder]
        assert [(e.number, is_prediction(e.command)) for e in own] == [(1, False), (2, True)]
        assert all(e.question and e.reason for e in own)
        assert all(c.startswith("python ") for e in own for c in commands(e))


@pytest.mark.parametrize("file", [stored.TINY_MEASURED, stored.TINY_SIDE_ROADS], ids=str)
def test_measurements_of_the_tiny_preset(file, tmp_path):
    for _, then in chosen(file.name, stored.read(file)):
        name, record = then["script"], tmp_path / "record.jsonl"
        devices = scripts.get(name).load().DEVICES
        through = ["tests/helpers/forks.py", devices] if devices > 1 else []
        run(*through, f"{name}.py", "--preset", "tiny", "--max-steps", 3, "--record", record)
        now = reading.read(record)[0][-1]["train"]
        if made_here(then):
            assert {**now, **then["train"]} == now, f"{name}, of {DAY}"


@NEEDS
def test_the_sheet_of_the_game():
    """Sizes may differ with PyTorch; that a script fits, or why it is refused, does not."""
    everything = sheet.everything()
    asked = chosen("game", zip(everything, stored.read(stored.GAME), strict=True))
    verdicts = sheet.verdicts([change for _, (change, _) in asked])
    for (_, ((level, _, _), then)), now in zip(asked, verdicts):
        assert (then["level"], then["lines"]) == (level.number, now["lines"])
        first = [v["printed"][1].partition(":")[0] for v in (then, now)]
        assert first[0] == first[1], f"{then['title']}, of {DAY}"


def test_small_updates_are_lost_in_bf16_alone():
    for r in stored.read(stored.LOST_UPDATES):
        is_bf16 = r["script"] == "03_bf16/train"
        said = f"{r['script']} changes {r['changed']:.0%} of its weights"
        assert (r["changed"] < 0.2) == is_bf16, said
