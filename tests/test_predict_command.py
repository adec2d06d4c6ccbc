"""Promise: `python -m shared.predict` draws, checks and refuses as it says."""

import json
import re
import time
from types import SimpleNamespace

import pytest
import torch
from conftest import NAMES, TEXT, run
from PIL import Image
from simulations import simulated

from shared.common import ending, scripts
from shared.common.errors import UserError
from shared.memory.blocks import CATEGORIES
from shared.predict import check, command, history, jobs, limits, simulation, tables
from shared.predict.jobs import Wanted, run_jobs


def test_pictures(pictures, on_gpu):
    folder = pictures / "new"
    names = [f"{name.replace('/', '_')}.png" for name in NAMES + TEXT]
    together = {"timeline": NAMES, "timeline_11_llm": TEXT}
    written = [*names, *(f"{name}.png" for name in together), "timelines.json"]
    assert sorted(f.name for f in folder.iterdir()) == sorted(written)
    peaks = {name: record["train"]["device_peak_gb"] for name, record in on_gpu["tiny"].items()}
    condensed = json.loads((folder / "timelines.json").read_text())
    assert [moments["script"] for moments in condensed] == NAMES + TEXT
    for moments in condensed:  # the peak is among them, however few are left
        total = [sum(column) for column in zip(*moments["device"].values())]
        assert len(total) == len(moments["at"]) <= 1.2 * history.POINTS  # and those of short lines
        assert max(total) == pytest.approx(peaks[moments["script"]] * 1e3, abs=0.1)
    for file in folder.glob("*.png"):
        alone = [name for name in peaks if name.replace("/", "_") == file.stem]
        shown = {name: peaks[name] for name in together.get(file.stem, alone)}
        assert json.loads(Image.open(file).info["Description"]) == shown


def test_history_ends_where_it_began():
    names = ("05_grad_accum/train", "10_offload/train")
    wanted = Wanted("gpu", "tiny")
    for record, held in run_jobs([(simulation.predict, name, wanted, True) for name in names]):
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
    [
        ("06_sgd/train", ["06"]),
        ("10_offload/plain", ["10", "--plain", "--devices", "1"]),
    ],
)
def test_check_measures_and_agrees(capsys, monkeypatch, name, argv):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
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


def test_check_fails_when_a_prediction_is_wrong(monkeypatch, capsys):
    record = simulated(["06_sgd/train"], "cpu", "tiny")["06_sgd/train"]
    train = record["train"]
    more = {**train, "device_peak_gb": train["device_peak_gb"] * 1.02}
    wrong = {**record, "train": more}
    monkeypatch.setattr(check, "run_jobs", lambda jobs: [wrong])
    monkeypatch.setattr(check, "measure", lambda *_: {**record, "device": "here"})
    wanted = [("06_sgd/train", Wanted("cpu", "tiny"))]
    assert not check.check(command.parse(["--check", "--preset", "tiny", "06"]), wanted)
    assert "+2.00%" in capsys.readouterr().out
    monkeypatch.setattr(check, "measure", lambda *_: None)  # the stage failed
    assert not check.check(command.parse(["--check", "--preset", "tiny", "06"]), wanted)


@pytest.mark.parametrize(
    "argv, message",
    [
        (["12_rlhf"], "stage 12_rlhf: there is no such stage"),
        (["02-77"], "stage 02-77: there is no stage 12"),
        (["--model", "vit_xxl"], "--model vit_xxl: there is no such model; choose from vit_tiny"),
        (["--fits", "-1"], "--fits: -1 is not a positive number"),
        (["--fits", "much"], "--fits: much is no card that is known; choose from v100"),
        (["--fits", "nan"], "--fits: nan is not a positive number"),
        (["--batch-size", "0"], "--batch-size: 0 is not a positive whole number"),
        (["--image-px", "230"], "--image-px 230: vit_l_16 cuts pictures into patches of 16 px"),
        (
            ["--check", "--batch-size", "8"],
            "--check runs the scripts as they are; leave --batch-size out",
        ),
        (
            ["--check", "--image-px", "384"],
            "--check runs the scripts as they are; leave --image-px out",
        ),
        (
            ["06", "--trust-remote-code"],
            "--trust-remote-code is about texts, but 06_sgd/train is about images",
        ),
        (
            ["--model", "vit_tiny", "11"],
            "--model vit_tiny is about images, but 11_llm/before is about texts",
        ),
        (
            ["--max-length", "64", "--image-px", "32"],
            (
                "--max-length 64 is about texts, but --image-px 32 is about images; leave one of"
                " them out"
            ),
        ),
        (
            ["--model", "distilbert_tiny", "--max-length", "513"],
            "--max-length 513: distilbert_tiny takes 512 tokens at most",
        ),
        (
            ["11", "--one-by-one", "--timeline", "/tmp"],
            "--timeline draws the scripts of one model; leave --one-by-one",
        ),
        (["11_llm/before", "--one-by-one"], "--one-by-one leads from before.py to train.py"),
        (["01_baseline/plain", "--late-zero-grad"], "--late-zero-grad changes the train.py"),
        (["--fits", "1e30"], "--fits 1e+30: no GPU has that much memory"),
        (["--fits", "24", "--on", "cpu"], "--fits is about a GPU's memory; leave --on cpu out"),
        (["--tensors-only", "--on", "cpu"], "--tensors-only is about a GPU's memory"),
        (["--fits", "24", "--tensors-only"], "--fits needs all that is reserved"),
        (["--check", "--torch", "2.11"], "leave --torch out"),
        (["--fits", "-3"], "--fits: -3 is not a positive number"),
        (["--card", "k80"], "--card: k80 is no card that is known; choose from v100"),
        (["--card", "t4", "--fits", "l4"], "--card and --fits name different cards"),
        (["--torch", "1.13"], "--torch: 1.13 is no version from 2.11 to 2."),
        (["--torch", "new"], "--torch: new is no version from 2.11 to 2."),
        (["--check", "--card", "l4"], "leave --card out"),
        (["--timeline", "/dev/null/x"], "--timeline /dev/null/x: Not a directory"),
    ],
)
def test_bad_input(argv, message):
    with pytest.raises(UserError) as caught:
        command.parse(argv)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "stage, sizes, message",
    [
        (
            "08_fsdp/train",
            {"batch_size": 10},
            "08_fsdp/train: a batch of 10 images does not divide by 4 devices",
        ),
        (
            "08_fsdp/train",
            {"devices": 3},
            "08_fsdp/train: a batch of 16 images does not divide by 3 devices",
        ),
        (
            "05_grad_accum/train",
            {"micro_batch_size": 32},
            "05_grad_accum/train: --micro-batch-size 32: a device gets only 16 images of a batch",
        ),
        (
            "01_baseline/train",
            {"batch_size": 10**10},
            "01_baseline/train: 10,000,000,000 images per device are 122,880 GB before a model",
        ),
        (
            "01_baseline/train",
            {"image_px": 100_000},
            "01_baseline/train: 64 images per device are 7,680 GB before a model has seen them",
        ),
        (
            "05_grad_accum/train",
            {"batch_size": 2_000_000},
            "05_grad_accum/train: an update of 500,000 micro-batches would be simulated for hours",
        ),
        (
            "08_fsdp/plain",
            {"batch_size": 10**6, "devices": 10**6},
            "--devices 1000000: so many are not simulated; 1,024 is the most",
        ),
        (
            "11_llm/train",
            {"model": "bigscience/bloom-560m", "max_length": 10**10},
            "11_llm/train: 3 texts per device are 480 GB before a model has seen them",
        ),
    ],
)
def test_sizes_that_do_not_fit_each_other(stage, sizes, message):
    with pytest.raises(UserError) as caught:
        simulation.arguments(stage, scripts.get(stage).load(), Wanted("gpu", "tiny", **sizes))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_bad_input_ends_in_one_line():
    assert run("-m", "shared.predict", "--fits", "-3", code=2).strip().count("\n") == 0
    with pytest.raises(UserError, match="a batch of 16 images does not divide by 3 devices"):
        command.main(["08", "--preset", "tiny", "--devices", "3"])
    late = "05_grad_accum/train: --late-zero-grad would wipe out the sum"
    with pytest.raises(UserError, match=late):
        command.main(["05", "--preset", "tiny", "--late-zero-grad"])
    with pytest.raises(UserError, match="none of the scripts asked for has micro-batches"):
        command.parse(["04", "--micro-batch-size", "2"])
    with pytest.raises(UserError, match="none of the scripts asked for shares the work"):
        command.parse(["01-07", "--devices", "8"])
    assert command.parse(["07-08", "--devices", "8"]).devices == 8


@pytest.mark.parametrize(
    "argv",
    [
        ["01", "--batch-size", "1" + 18 * "0"],
        ["01", "--model", "vit_tiny", "--image-px", "4000000000"],
    ],
)
def test_sizes_beyond_counting(argv):
    with pytest.raises(UserError, match="more bytes than can be counted|choose smaller"):
        command.main([*argv, "--preset", "tiny"])


def test_what_no_gpu_holds_is_refused():
    limits.reasonable_peak("06_sgd/train", 9_999)
    with pytest.raises(UserError, match="06_sgd/train would need 10,001 GB on a GPU, and no GPU"):
        limits.reasonable_peak("06_sgd/train", 10_001)
    with pytest.raises(UserError, match="11_llm/before would need .* GB on a GPU"):
        command.main(["11_llm/before", "--preset", "tiny", "--batch-size", "12000000"])


def test_who_waits_long_is_told(monkeypatch, capsys):
    monkeypatch.setattr(jobs, "SILENCE", 0)
    slow = [(time.sleep, 0.1), (time.sleep, 2.5)]
    run_jobs(slow)
    said = capsys.readouterr().err.splitlines()
    assert said and re.fullmatch(r"simulating for \d+ s, [01] of 2 done", said[0])


def test_tables_say_what_factors_and_sizes_are_of():
    phase = {"device_peak_gb": 8.0, "device_reserved_gb": 9.0, "host_peak_gb": None}
    first = {"script": "a/x", "image_px": 32, "world_size": 16, "seconds": 1.0}
    first |= {"batch_size": 16, "micro_batch_size": 4, "peak_at": {"train": {"module": None}}}
    first["peak_at"]["train"]["phase"] = "step"
    first |= {phase_name: {**phase, "breakdown_gb": {}} for phase_name in ("load", "train")}
    second = {
        **first,
        "train": {**first["train"], "device_peak_gb": 1.0, "device_reserved_gb": 3.0},
    }
    heading, row, last = tables.predictions([first, second])[:3]
    names = re.split(r" {2,}", heading)
    assert re.split(r" {2,}", row)[names.index("at once")] == "1"  # not the script's 4
    cells = dict(zip(names, re.split(r" {2,}", last)))
    assert cells["allocated vs first"] == "8.0x less" and cells["reserved vs first"] == "3.0x less"


def test_unsupported_torch(monkeypatch):
    for version, fine in (
        ("2.11.0", True),
        ("2.15.0+cu132", True),
        ("2.16.0.dev1", True),
        ("2.10.1", False),
        ("3.0.0", False),
    ):
        monkeypatch.setattr(torch, "__version__", version)
        if fine:
            jobs.supported_torch()
        else:
            with pytest.raises(
                UserError, match=f"torch {version} is here; the predictor is tested with torch"
            ):
                jobs.supported_torch()


def test_a_model_that_the_stage_cannot_shard():
    script = scripts.get("08_fsdp/train").load()
    args = SimpleNamespace(script="08_fsdp/train", model="a_cnn", world_size=4)
    cannot = "08_fsdp/train cannot shard a_cnn over 4 devices: .*'encoder'"
    with pytest.raises(UserError, match=cannot):
        simulation.explained(script.parallelize, args)(torch.nn.Linear(2, 2), None)


def test_a_killed_simulation_is_said():
    with pytest.raises(UserError, match="a simulation was killed"):
        run_jobs([(ending._end, 9)])
