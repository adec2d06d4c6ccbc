"""Promise: a pipeline trains like one process, and shows the rank that needs most memory.

The memory of each rank is predicted by running it alone; processes on emulated GPUs agree.
"""

import json

import pytest
from conftest import ROOT, read_json, run
from helpers.emulated import NEEDS
from helpers.predictions import predicted
from safetensors.torch import load_file

from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts

NAME = "08_fsdp/pipeline"
DEVICES = 4
THROUGH = ("-m", "emulated_gpu", "--devices", DEVICES)
TINY = ("--preset", "tiny", "--max-steps", 3)
BASE = ("--preset", "full", "--model", "vit_b_16", "--dry-run")  # its activations outweigh the rest


def changed(folder, *replacements):
    """Return a copy of the script, with texts replaced."""
    text = scripts.get(NAME).path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    copy = folder / f"{NAME}.py"  # checkpoints have the name of their script
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(text)
    return copy


def record(script, folder, *options, size=TINY, through=()):
    """Run a script for three updates, by default with the tiny model, and return its record."""
    file = folder / "record.jsonl"
    file.unlink(missing_ok=True)
    run(*through, script, *size, "--record", file, *options)
    return json.loads(file.read_text())


def test_losses_and_saved_weights_are_those_of_one_process(tmp_path):
    script = changed(tmp_path, ("bf16-true", "32-true"))
    runs = {}
    for n in (1, DEVICES):
        saved = tmp_path / f"of{n}"
        runs[n] = record(script, tmp_path, "--devices", n, "--save", saved)
        runs[n]["weights"] = load_file(saved / "model.safetensors")
    alone, four = runs[1], runs[DEVICES]
    for key in ("first_loss", "last_loss"):
        assert four[key] == pytest.approx(alone[key], rel=1e-5)
    assert four["test_accuracy"] == alone["test_accuracy"]
    assert four["last_loss"] < four["first_loss"]
    assert four["weights"].keys() == alone["weights"].keys()
    for name, weight in alone["weights"].items():
        assert weight.allclose(four["weights"][name], rtol=1e-4, atol=1e-5), name


def test_an_interrupted_run_continues(tmp_path):
    """Each process has the checkpoint of its own blocks."""
    script, saved = ROOT / f"{NAME}.py", tmp_path / "saved"
    whole = record(script, tmp_path, "--max-steps", 12)
    step = "                scheduler.step()\n"
    cut = changed(tmp_path, (step, f"{step}                assert meter.steps < 10\n"))
    options = ["--max-steps", 12, "--save", saved, "--save-minutes", 0]
    run(cut, "--preset", "tiny", *options, code=1)
    assert [*saved.glob("checkpoint-*")]
    again = record(script, tmp_path, *options, "--resume")
    assert again["resumed_at"] == 10
    assert again["last_loss"] == whole["last_loss"]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The record of four processes on emulated GPUs, and the peak of each in bytes."""
    folder = tmp_path_factory.mktemp("together")
    through = [*THROUGH, "--json", folder / "peaks.json"]
    found = record(ROOT / f"{NAME}.py", folder, size=BASE, through=through)
    reports = read_json(folder / "peaks.json")
    return found, [r["peaks"][str(r["rank"])]["allocated"] for r in reports]


@NEEDS
def test_ranks_alone_need_what_they_need_together(together, capsys):
    found, peaks = together
    ends = (0, DEVICES - 1)
    alone = run_jobs(
        [(predict, scripts.get(NAME), Wanted("full", "vit_b_16", rank=rank)) for rank in ends]
    )
    needs = [round(r["train"]["device_peak_gb"] * 1e9) for r in alone]
    assert needs == [peaks[rank] for rank in ends]
    assert peaks.index(max(peaks)) == found["rank"] == 0
    shown = predicted("--model", "vit_b_16", NAME)[NAME]
    assert "rank 0, backward pass" in capsys.readouterr().out
    assert shown["rank"] == 0
    assert shown["train"]["breakdown_gb"] == found["train"]["breakdown_gb"]


@NEEDS
def test_a_card_that_is_too_small_for_one_rank():
    """The rank that fails is the one that is shown, by PyTorch's own error."""
    with pytest.raises(ValueError, match="out of memory"):
        run_jobs([(predict, scripts.get(NAME), Wanted("full", card_gb=1.9))])
