"""Promise: `python -m shared predict` takes scripts by name and path, and refuses wrong input."""

import os
import shutil
from pathlib import Path

import pytest
from conftest import NAMES, ROOT, run
from helpers.emulated import NEEDS
from helpers.predictions import predicted

from shared.lab.predict import command, options, selection
from shared.lab.predict.jobs import Failed, run_jobs
from shared.lab.records import formats, scripts

pytestmark = NEEDS

HERE = str(Path(__file__))  # of the user's, like any file that is no stage
TRAIN = ROOT / "06_sgd" / "train.py"


def test_a_peak_that_grows_is_not_a_fraction_less():
    expected = ["3.0x less", "1.0x less", "2.5x as much"]
    assert [formats.less(6, now) for now in (2, 6, 15)] == expected


def test_fake_data_are_enough_for_any_batch():
    few, many = (
        predicted("01", "--image-px", 16, "--batch-size", n)["01_baseline/train"]
        for n in (2500, 5000)
    )
    # Whole batches, also in the last update, whose cost and time are shown.
    assert many["cost"]["tflop"] == pytest.approx(2 * few["cost"]["tflop"], rel=0.01)


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
        (["mine.py", "--lr", "1"], "unrecognized arguments: --lr 1; those of a script go after --"),
        ([HERE, "--model", "vit_b_16"], "--model vit_b_16; those of a script go after --"),
        ([HERE, "06"], "unrecognized arguments: 06; those"),
        ([HERE, "--snapshot", "."], "argument --snapshot: . is a folder (see --help)"),
        ([HERE, "--input", "3x"], "3x is not a shape such as 3x224x224"),
        (["06_sgd/nothing.py"], "there is no script 06_sgd/nothing.py"),
        (["mine.ipynb"], "mine.ipynb is a notebook; jupyter nbconvert --to script makes a script"),
    ],
)
def test_a_script_of_the_users_goes_to_why(argv, message, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(argv)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("\nemulated-gpu: ") and message in said


@pytest.mark.parametrize(
    "folder, text, names",
    [
        (".", "06_sgd/train", ["06_sgd/train"]),
        (".", "06_sgd/train.py", ["06_sgd/train"]),
        (".", "./06_sgd/train.py", ["06_sgd/train"]),
        (".", str(TRAIN), ["06_sgd/train"]),
        ("tests", "../06_sgd/train.py", ["06_sgd/train"]),
        ("tests", "06_sgd/train.py", ["06_sgd/train"]),
        ("06_sgd", "train.py", ["06_sgd/train"]),
        ("06_sgd", "adafactor.py,../05_grad_accum", ["06_sgd/adafactor", "05_grad_accum"]),
        (".", "01-03,06", ["01-03", "06"]),
        (".", "11_llm/none_such.py", ["11_llm/none_such.py"]),
    ],
)
def test_a_script_is_the_same_by_name_and_by_path(folder, text, names, monkeypatch):
    monkeypatch.chdir(ROOT / folder)
    assert selection.resolve(text) == names


def test_a_file_of_the_same_name_in_another_folder_is_the_users(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "06_sgd").mkdir()
    shutil.copy(TRAIN, tmp_path / "06_sgd")
    assert selection.names_own_script(["06_sgd/train.py"])


def test_one_gpu_has_a_ladder_of_its_own():
    args = options.parse(["--one-gpu", "--card", "rtx4090"])
    assert sorted(args.names) == sorted([*NAMES[:7], *scripts.ON_ONE_GPU])
    assert {wanted.devices for _, wanted in selection.runs(args)} == {1}


def test_a_model_s_folder_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny_bert").mkdir()
    args = options.parse(["11_llm/train", "--model", "tiny_bert,distilbert-base-uncased"])
    assert args.models == [str(tmp_path / "tiny_bert"), "distilbert-base-uncased"]


def test_runs_that_end_are_said_and_the_others_are_kept():
    with pytest.raises(Failed, match="9 was ended by exit code 9; 8 was ended") as caught:
        run_jobs([(os._exit, 9), (abs, -7), (os._exit, 8)])
    assert caught.value.completed == [7]


def test_a_stage_of_ones_own(tmp_path):
    for folder in ("06_sgd", "shared"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.jsonl*"))
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
