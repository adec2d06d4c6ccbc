"""Promise: --save keeps a model and --resume continues a run; problems lose no training run.

That code in the saved files is never run, test_diffs.py holds.
"""

import errno
import runpy
import shutil
import types

import numpy as np
import pytest
import torch
from conftest import read_json, run
from helpers.refusals import refused
from helpers.resuming import OFTEN, interrupt
from helpers.sample_files import damaged, textures
from helpers.single_process import losses
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from shared.images import data, models
from shared.lab.records import scripts
from shared.run import saving

TINY = ["--preset", "tiny"]


def test_what_is_wrong_is_said_in_one_line(tmp_path):
    folder, script = tmp_path / "saved", scripts.get("06_sgd/train").load()
    options = [*TINY, "--max-steps", "12", "--save", str(folder), *OFTEN]
    interrupt(script, options)

    again = [*options, "--resume"]
    refused("unfinished run; --resume", script.main, options)
    refused("has seed 123, not 5", script.main, [*again, "--seed", "5"])
    refused("has updates 12, not 13", script.main, [*again, "--max-steps", "13"])
    [checkpoint] = folder.glob("checkpoint-*")
    shutil.rmtree(checkpoint)
    (folder / "config.json").write_text("{}")  # of something else
    refused("holds other files", script.main, again)


def test_resuming_without_a_checkpoint_begins_anew(tmp_path):
    options = [*TINY, "--max-steps", "2", "--save", str(tmp_path / "new"), "--resume"]
    record = scripts.get("01_baseline/plain").load().main(options)
    assert record["steps"] == 2 and record["resumed_at"] is None
    assert read_json(tmp_path / "new" / "config.json")["classes"] == [*"0123456789"]


def test_checkpoints_do_not_change_what_a_training_holds(tmp_path):
    script, options = scripts.get("06_sgd/train").load(), [*TINY, "--max-steps", "12"]
    with_them = script.main([*options, "--save", str(tmp_path / "saved"), *OFTEN])
    record = script.main(options)
    for key in ("load", "train", "first_loss", "last_loss", "test_accuracy"):
        assert with_them[key] == record[key], key


def test_fsdp1_saves_what_fsdp2_saves(tmp_path):
    saved = []
    for name in ("fsdp1", "plain"):
        folder = tmp_path / name
        start = "tests/helpers/forks.py", 2, f"08_fsdp/{name}.py"
        run(*start, *TINY, "--max-steps", 3, "--save", folder)
        saved.append(load_file(folder / "model.safetensors"))
    one, two = saved
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.allclose(tensor, two[name], atol=2e-3), name


def test_the_state_of_a_gradient_scaler_is_kept(tmp_path):
    """On a GPU, Meter saves Fabric's scaler; 02_mixed_precision/plain hands over its own."""

    def new():
        script = scripts.get("02_mixed_precision/plain").load()
        script.SCALER = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
        return script

    options = [*TINY, "--max-steps", "12", "--save", str(tmp_path / "saved"), *OFTEN]
    interrupt(new(), options)
    resumed = new()
    assert resumed.main([*options, "--resume"])["resumed_at"] == 10
    assert resumed.SCALER.get_scale() == 8.0 * 2**4  # doubled after every third of 12 updates


UNUSUAL = [f"06_sgd/{n}" for n in "adam_8bit adam_in_backward ema".split()]


@pytest.mark.parametrize("name", [*UNUSUAL, "11_llm/qlora"])
def test_the_states_of_unusual_optimizers_are_kept(name, tmp_path, monkeypatch):
    """Quantized tensors, a learning rate that is a tensor; an optimizer per weight; an average."""
    monkeypatch.setattr(saving, "AGREE", 4)  # so that a checkpoint is due
    whole, there = losses(scripts.get(name).load(), "--max-steps", "6")
    options = ["--max-steps", "6", "--save", str(tmp_path / "saved"), *OFTEN]
    interrupt(scripts.get(name).load(), [*TINY, *options])
    again, record = losses(scripts.get(name).load(), *options, "--resume")
    assert record["resumed_at"] == 4 and again == whole[4:]
    assert record["test_accuracy"] == there["test_accuracy"]


def test_a_model_that_cannot_be_written_leaves_the_checkpoint(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "model.safetensors")

    folder, script = tmp_path / "saved", scripts.get("06_sgd/train").load()
    options = [*TINY, "--max-steps", "12", "--save", str(folder), *OFTEN]
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(models, "save_file", fail)
        script.main(options)
    assert not (folder / "config.json").exists()
    assert script.main([*options, "--resume"])["resumed_at"] == 10
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors"}


def test_classify_reads_pictures_as_an_evaluation_does(tmp_path):
    pictures = textures(tmp_path / "data", 40)
    folder = tmp_path / "saved"
    options = [*TINY, "--data", str(pictures), "--max-steps", "1", "--save", str(folder)]
    scripts.get("06_sgd/train").load().main(options)
    classify = runpy.run_path("10_offload/classify.py")
    _, made = classify["load"](folder)
    args = types.SimpleNamespace(data=str(pictures), image_px=made.image_px, seed=0)
    test = data.image_sets(args)[0][2]
    paths = [test.source.samples[i][0] for i in test.indices]
    assert made.cropped and made.classes == ["dark", "light"]
    assert torch.equal(classify["read"](paths, made), torch.stack([x for x, _ in test]))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """06, its options, and its --save folder with a checkpoint, after an interruption."""
    script, folder = scripts.get("06_sgd/train").load(), tmp_path_factory.mktemp("digits") / "saved"
    options = ["--preset", "tiny", "--max-steps", "24", "--save", str(folder), *OFTEN]
    interrupt(script, options)
    return script, options, folder


def test_a_damaged_checkpoint_is_no_new_run(interrupted):
    script, options, folder = interrupted
    [file] = folder.glob("checkpoint-*/*")
    for _ in damaged(file):
        with pytest.raises(Exception):
            script.main([*options, "--resume"])


def test_a_saved_model_names_pictures(interrupted, tmp_path):
    script, options, folder = interrupted
    record = script.main([*options, "--resume"])
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    with pytest.raises(SystemExit) as end:  # a job that is started again
        script.main([*options, "--resume"])
    assert not end.value.code
    raw, paths = load_digits(), [str(tmp_path / f"{i}.png") for i in range(40)]
    for path, picture in zip(paths, raw.images):
        Image.fromarray((picture * 255 / 16).astype(np.uint8)).save(path)
    printed = run("10_offload/classify.py", folder, *paths).splitlines()
    right = sum(line.startswith(f"{digit} (") for line, digit in zip(printed, raw.target))
    assert len(printed) == 40 and right / 40 > record["test_accuracy"] - 0.1
    load = runpy.run_path("10_offload/classify.py")["load"]
    for file in folder.iterdir():
        for _ in damaged(file):
            with pytest.raises(Exception):
                load(folder)
