"""Promise: `python -m shared.predict` draws, checks and refuses as it says."""

import json
import os
import re

import pytest
import torch
from conftest import TEXT, read_json
from PIL import Image
from simulations import predicted, simulated

from shared.cli import UserError
from shared.memory.blocks import CATEGORIES
from shared.predict import command, history, jobs, simulation, tables
from shared.predict.jobs import Wanted, run_jobs
from shared.records import scripts

DRAWN = ["05_grad_accum/train", "10_offload/train"]


def test_pictures(tmp_path):
    """Of each script, and of the scripts of a model together."""
    records = predicted("--preset", "tiny", "05", "10", "11", "--timeline", tmp_path / "new")
    assert [*records] == [*DRAWN, *TEXT]
    together = {"timeline": DRAWN, "timeline_11_llm": TEXT}
    shows = {name.replace("/", "_"): [name] for name in records} | together
    written = [*(f"{name}.png" for name in shows), "timelines.json"]
    assert sorted(f.name for f in (tmp_path / "new").iterdir()) == sorted(written)
    peaks = {name: record["train"]["device_peak_gb"] for name, record in records.items()}
    condensed = read_json(tmp_path / "new" / "timelines.json")
    assert [moments["script"] for moments in condensed] == [*records]
    for moments in condensed:  # the peak is among them, however few are left
        total = [sum(column) for column in zip(*moments["device"].values())]
        assert len(total) == len(moments["at"]) <= 1.2 * history.POINTS  # and those of short lines
        assert max(total) == pytest.approx(peaks[moments["script"]] * 1e3, abs=0.1)
    for file in (tmp_path / "new").glob("*.png"):
        shown = json.loads(Image.open(file).info["Description"])
        assert shown == {name: peaks[name] for name in shows[file.stem]}


def test_history_ends_where_it_began():
    wanted = Wanted("gpu", "tiny")
    for record, held in run_jobs([(simulation.predict, name, wanted, True) for name in DRAWN]):
        total, on_one_device = held["device"].sum(1), record["world_size"] == 1
        assert total.max() == pytest.approx(record["train"]["device_peak_gb"], abs=1e-7)
        weights = held["device" if on_one_device else "host"][:, CATEGORIES.index("parameters")]
        assert weights.min() == weights.max() > 0
        for label in ("gradients", "temporaries"):
            assert held["device"][-1, CATEGORIES.index(label)] == 0
        pairs = zip(held["phases"], [None, *held["phases"]])
        order = [phase for phase, before in pairs if phase != before]
        assert order == (4 if on_one_device else 1) * ["forward", "backward"] + ["step"]


@pytest.mark.parametrize(
    "name, argv",
    [("06_sgd/train", ["06"]), ("10_offload/plain", ["10", "--plain", "--devices", "1"])],
)
def test_check_measures_and_agrees(capsys, monkeypatch, name, argv):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(SystemExit) as ended:
        command.main(["--check", "--preset", "tiny", *argv])
    assert ended.value.code == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if line.startswith(f"{name} ") and "allocated" in line]
    rows = [line.split() for line in lines]
    assert [row[1] for row in rows] == ["load", "train"]
    for _, phase, _, measured, foreseen, *rest in rows:
        # In plain PyTorch the mesh is made while loading, with small tensors that the simulation
        # does not count.
        if phase == "train" or "plain" not in name:
            assert measured == foreseen and rest == ["+0.00%", "+0", "same"]


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--fits", "much"], "--fits: much is no card that is known; choose from v100"),
        (["--check", "--batch-size", "8"], "--check runs the scripts as they are; leave --batch-s"),
        (["--model", "vit_tiny", "11"], "--model vit_tiny is about images, but 11_llm/before is"),
        (["08", "--preset", "tiny", "--devices", "3"], "a batch of 16 images does not divide by 3"),
    ],
)
def test_bad_input_is_told(argv, message):
    with pytest.raises(UserError, match=message) as caught:
        command.main(argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "stage, sizes, message",
    [
        ("05_grad_accum", {"micro_batch_size": 32}, "--micro-batch-size 32: a device gets only 16"),
        ("01_baseline", {"batch_size": 10**10}, "10,000,000,000 images per device are 122,880 GB"),
        ("11_llm", {"max_length": 10**10, "model": "bigscience/bloom-560m"}, "3 texts per device "),
    ],
)
def test_sizes_that_do_not_fit_each_other(stage, sizes, message):
    name = f"{stage}/train"
    with pytest.raises(UserError, match=f"^{name}: {message}"):
        simulation.arguments(name, scripts.get(name).load(), Wanted("gpu", "tiny", **sizes))


def test_factors_are_against_the_first():
    first, *_, last = simulated(["01_baseline/train", "06_sgd/train"], "gpu", "tiny").values()
    heading, _, row = tables.predictions([first, last])[:3]
    cells = dict(zip(re.split(r" {2,}", heading), re.split(r" {2,}", row)))
    for what, key in (("allocated", "device_peak_gb"), ("reserved", "device_reserved_gb")):
        factor = first["train"][key] / last["train"][key]
        assert cells[f"{what} vs first"] == f"{factor:.1f}x less"


def test_a_torch_that_was_not_tested_is_refused(monkeypatch):
    for version in ("2.11.0", "2.15.0+cu132", "2.16.0.dev1"):
        monkeypatch.setattr(torch, "__version__", version)
        jobs.supported_torch()
    monkeypatch.setattr(torch, "__version__", "2.10.1")
    with pytest.raises(UserError, match="torch 2.10.1 is here; the predictor is tested with"):
        jobs.supported_torch()


def test_a_killed_simulation_is_said():
    with pytest.raises(UserError, match="a simulation was killed"):
        run_jobs([(os._exit, 9)])
