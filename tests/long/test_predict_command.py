"""Promise: `python -m shared predict` draws its pictures, and refuses wrong input in one line."""

import json
import os
import shutil

import pytest
from conftest import ROOT, TEXT, read_json, run
from helpers.emulated import NEEDS
from helpers.predictions import predicted
from PIL import Image

from shared.cli import UserError
from shared.lab.predict import command, history
from shared.lab.predict.jobs import Failed, run_jobs

pytestmark = NEEDS

DRAWN = ["05_grad_accum/train", "10_offload/train"]


def test_pictures(tmp_path):
    """Of each script, and of the peaks of all."""
    records = predicted("--preset", "tiny", "05", "10", "11", "--timeline", tmp_path / "new")
    assert [*records] == [*DRAWN, *TEXT]
    shows = {name.replace("/", "_"): [name] for name in records} | {"peaks": [*DRAWN, *TEXT]}
    written = [*(f"{name}.png" for name in shows), "timelines.json"]
    assert sorted(f.name for f in (tmp_path / "new").iterdir()) == sorted(written)
    peaks = {name: record["train"]["device_peak_gb"] for name, record in records.items()}
    condensed = read_json(tmp_path / "new" / "timelines.json")
    assert [moments["script"] for moments in condensed] == [*records]
    for moments in condensed:  # the peak is kept, however few points are left
        total = [sum(column) for column in zip(*moments["device"].values())]
        assert len(total) == len(moments["at"]) <= 1.2 * history.POINTS  # and short lines' points
        peak = peaks[moments["script"]] * 1e3
        if moments["script"] in TEXT:  # the last update's texts may be short
            assert peak / 2 < max(total) < peak + 0.1
        else:
            assert max(total) == pytest.approx(peak, abs=0.1)
    for file in (tmp_path / "new").glob("*.png"):
        shown = json.loads(Image.open(file).info["Description"])
        assert shown == {name: peaks[name] for name in shows[file.stem]}


def test_segments_that_grow_waste_less():
    ways = [[], ["--expandable"]]
    first, second = (command.main(["01", "02", "--preset", "tiny", "--json", *w]) for w in ways)
    for before, after in zip(first, second, strict=True):
        was, now = before["train"], after["train"]
        assert now["device_peak_gb"] < was["device_peak_gb"]  # all remainders are split off
        page = 2**21 / 1e9 + 1e-9  # a segment grows by whole pages
        assert (
            now["device_peak_gb"] <= now["device_reserved_gb"] <= was["device_reserved_gb"] + page
        )


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--fits", "much"], "--fits: much is not a known card; choose from v100"),
        (["--model", "vit_tiny", "11"], "is for images, but 11_llm/before trains on"),
        (["08", "--preset", "tiny", "--devices", "3"], "a batch of 16 images does not divide by 3"),
    ],
)
def test_bad_input_is_told(argv, message):
    with pytest.raises(UserError, match=message) as caught:
        command.main(argv)
    assert "\n" not in str(caught.value)


def test_runs_that_end_are_said_and_the_others_are_kept():
    with pytest.raises(Failed, match="9 was ended by exit code 9; 8 was ended") as caught:
        run_jobs([(os._exit, 9), (abs, -7), (os._exit, 8)])
    assert caught.value.completed == [7]


def test_a_stage_of_ones_own(tmp_path):
    for folder in ("06_sgd", "shared"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.json"))
    own = (ROOT / "06_sgd" / "train.py").read_text().replace("Stage 06, SGD", "Stage 12, mine")
    own = own.replace(
        "    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))",
        "",
    )
    model = "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, len(loaders.classes)))"
    (tmp_path / "12_mine").mkdir()
    (tmp_path / "12_mine" / "train.py").write_text(own.replace("models.vit(args, loaders)", model))
    command = ["-m", "shared", "predict", "12", "--preset", "tiny"]
    assert "12_mine/train" in run(*command, cwd=tmp_path, PYTHONPATH=str(tmp_path))
