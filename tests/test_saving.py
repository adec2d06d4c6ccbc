"""Promise: a training that was killed goes on with the same losses; --save keeps its model."""

import errno
import json
import random
import shutil

import numpy as np
import pytest
import torch
from alone import losses
from conftest import read_json, run
from PIL import Image

from shared import saving
from shared.common import scripts
from shared.common.errors import UserError
from shared.common.kept import CHECKPOINT, checkpoints
from shared.images import data, models
from shared.records.record import read

OFTEN = ("--save-minutes", "1e-9")  # as often as possible


@pytest.fixture(scope="module")
def textures(tmp_path_factory):
    """156 pictures of two classes, larger than the model takes them: they are cropped at random."""
    folder, rng = tmp_path_factory.mktemp("pictures") / "textures", np.random.default_rng(0)
    for name, low, high in (("dark", 0, 150), ("light", 100, 255)):
        (folder / name).mkdir(parents=True)
        for i in range(78):
            pixels = rng.integers(low, high, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


@pytest.mark.parametrize("n, name", [(1, "06_sgd/train"), (4, "11_llm/train")])
def test_killed_at_random_it_goes_on_with_the_same_losses(n, name, tmp_path, textures):
    """SGD with a schedule, pictures that are cropped; Adam, sharded over four processes."""
    options = ["--preset", "tiny", "--epochs", "2"]
    options += ["--limit", "90"] if name.startswith("11") else ["--data", textures]
    file, saved = tmp_path / "out.jsonl", tmp_path / "saved"
    keep = ("--save", saved, *OFTEN)

    def train(file, kill_at, *more, code=0):
        run("tests/resumed.py", n, kill_at, file, name, *options, *more, code=code)

    def lines(file):
        *losses, record = [json.loads(line) for line in file.read_text().splitlines()]
        return losses, record

    train(tmp_path / "whole.jsonl", 0)
    whole, record = lines(tmp_path / "whole.jsonl")
    kill_at = random.randint(5, len(whole) - 5)
    print(f"killed after update {kill_at} of {len(whole)}")
    train(file, kill_at, *keep, code=-9 if n == 1 else 1)
    [checkpoint] = checkpoints(saved)
    train(file, 0, *keep, "--resume")
    parts, last = lines(file)
    losses = dict(whole)
    assert all(losses[update] == found for update, found in parts)
    assert {update for update, _ in parts} == losses.keys()
    same = ["load", "test_accuracy", "train_accuracy", "first_loss", "last_loss", "steps"]
    assert {key: last[key] for key in same} == {key: record[key] for key in same}
    # The first updates of a process are measured. At another place in the epoch, texts differ in
    # length, and the counts of accuracy, some bytes, in age.
    least = 0 if name.startswith("11") else record["train"]["device_peak_gb"] - 1e-7
    assert least <= last["train"]["device_peak_gb"] <= record["train"]["device_peak_gb"]
    assert last["resumed_at"] == (kill_at - 1) // 4 * 4 == int(checkpoint.name[-9:])
    assert last["save"]["device_peak_gb"] >= last["train"]["breakdown_gb"]["parameters"]
    assert record["save"] is None and record["resumed_at"] is None
    assert not checkpoints(saved) and (saved / "model.safetensors").is_file()


@pytest.fixture(scope="module")
def of_digits(tmp_path_factory):
    """What 06 has saved, with checkpoints on the way; its record, and that of 06 without --save."""
    folder, script = tmp_path_factory.mktemp("digits") / "saved", scripts.get("06_sgd/train").load()
    options = ["--preset", "tiny", "--max-steps", "24"]
    return folder, script.main([*options, "--save", str(folder), *OFTEN]), script.main(options)


def test_a_saved_model_names_pictures(of_digits, tmp_path, capsys):
    folder, record, _ = of_digits
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    from sklearn.datasets import load_digits

    raw = load_digits()
    paths = [str(tmp_path / f"{i}.png") for i in range(40)]
    for path, picture in zip(paths, raw.images):
        Image.fromarray((picture * 255 / 16).astype(np.uint8)).save(path)
    printed = run("10_offload/classify.py", folder, *paths).splitlines()
    assert len(printed) == 40
    right = sum(line.startswith(f"{digit} (") for line, digit in zip(printed, raw.target))
    assert right / 40 > record["test_accuracy"] - 0.1


def test_pictures_are_read_as_in_an_evaluation(of_digits, textures):
    _, made = models.load(of_digits[0])
    made.cropped = True
    test = data.image_folder(textures, made.image_px, seed=0)[0][2]
    paths = [test.source.paths[i] for i in test.indices]
    assert torch.equal(data.read(paths, made), torch.stack([x for x, _ in test]))


def test_checkpoints_do_not_change_what_a_training_holds(of_digits):
    record = of_digits[2]
    for key in ("load", "train", "first_loss", "last_loss", "test_accuracy"):
        assert of_digits[1][key] == record[key], key
    weights = record["train"]["breakdown_gb"]["parameters"]
    assert of_digits[1]["save"]["device_peak_gb"] == pytest.approx(weights, rel=0.01)


def interrupt(script, options, monkeypatch):
    """Runs a script until its first epoch is over, and stops it there."""

    def stop(meter, accuracy):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(script.Meter, "end_epoch", stop)
        script.main(options)


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A folder with the checkpoint of a training that was interrupted, and its options."""
    options = ["--preset", "tiny", "--max-steps", "12", "--save", str(tmp_path / "saved"), *OFTEN]
    script = scripts.get("06_sgd/train").load()
    interrupt(script, options, monkeypatch)
    return script, tmp_path / "saved", options


def test_the_state_of_a_gradient_scaler_is_kept(tmp_path, monkeypatch):
    """On a GPU, Fabric's scaler is kept by Saving, and that of 02_mixed_precision/plain by main."""

    def new():
        script = scripts.get("02_mixed_precision/plain").load()
        script.SCALER = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
        return script

    options = ["--preset", "tiny", "--max-steps", "12", "--save", str(tmp_path / "saved"), *OFTEN]
    interrupt(new(), options, monkeypatch)
    resumed = new()
    assert resumed.main([*options, "--resume"])["resumed_at"] == 10
    assert resumed.SCALER.get_scale() == 8.0 * 2**4  # doubled after every third of 12 updates


@pytest.mark.parametrize("name", ["06_sgd/adam_8bit", "06_sgd/adam_in_backward"])
def test_the_states_of_unusual_optimizers_are_kept(name, tmp_path, monkeypatch):
    """Quantized tensors and a learning rate that is a tensor; an optimizer for every weight."""
    monkeypatch.setattr(saving, "AGREE", 4)  # so that it is time for a checkpoint
    options = ["--preset", "tiny", "--max-steps", "6"]
    whole, _ = losses(scripts.get(name).load(), *options)
    options += ["--save", str(tmp_path / "saved"), *OFTEN]
    interrupt(scripts.get(name).load(), options, monkeypatch)
    again, record = losses(scripts.get(name).load(), *options, "--resume")
    assert record["resumed_at"] == 4 and again == whole[4:]


def test_what_is_wrong_with_resuming_is_said_in_one_line(interrupted, tmp_path):
    script, folder, options = interrupted
    [checkpoint] = checkpoints(folder)
    numbers = checkpoint / "training.json"
    tensors = next((checkpoint / "tensors").iterdir())

    def refused(said, options):
        with pytest.raises(UserError, match=said) as found:
            script.main(options)
        assert "\n" not in str(found.value)

    refused("add --resume", options)
    refused("--resume is about what --save", ["--preset", "tiny", "--resume"])
    refused("--save-minutes is about what --save", ["--preset", "tiny", "--save-minutes", "3"])
    refused("has seed 123, this one 5", [*options, "--resume", "--seed", "5"])
    refused("has updates 12, this one 13", [*options, "--resume", "--max-steps", "13"])
    for file in (tensors, checkpoint / "process-0.safetensors", numbers):
        whole = file.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], b"[]", None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            refused("is damaged", [*options, "--resume"])
            file.write_bytes(whole)
    shutil.rmtree(checkpoint)
    (folder / "letter.txt").write_text("Dear")
    refused("no model", [*options, "--resume"])
    (folder / "letter.txt").rename(folder / "config.json")
    refused("has ended", [*options, "--resume"])
    (tmp_path / "file").write_text("")
    refused("choose another folder", ["--preset", "tiny", "--save", str(tmp_path / "file")])


def test_resuming_without_a_checkpoint_begins_anew(tmp_path, capsys):
    options = ["--preset", "tiny", "--max-steps", "2", "--save", str(tmp_path / "new"), "--resume"]
    record = scripts.get("01_baseline/plain").load().main(options)
    assert "beginning anew" in capsys.readouterr().out
    assert record["steps"] == 2 and record["resumed_at"] is None
    assert read_json(tmp_path / "new" / "config.json")["classes"] == data.DIGITS


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(
    tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "saved"
    in_the_way = (folder / CHECKPOINT.format(10)).with_suffix(".part") / "tensors"
    in_the_way.mkdir(parents=True)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    options = ["--preset", "tiny", "--max-steps", "12", "--save", str(folder), *OFTEN]
    record = scripts.get("06_sgd/train").load().main(options)
    assert "no checkpoint after update 10: File exists" in capsys.readouterr().out
    assert record["steps"] == 12 and record["save"] is None


def test_shared_out_states_are_not_kept_but_the_model_is(tmp_path):
    folder = tmp_path / "saved"
    options = ("--preset", "tiny", "--devices", 1, "--max-steps", 5, "--save", folder, *OFTEN)
    printed = run("tests/resumed.py", 1, 0, tmp_path / "out.jsonl", "08_fsdp/zero1", *options)
    states = "ZeroRedundancyOptimizer's states cannot be kept; the model is saved at the end"
    assert f"\n- no checkpoint after update 4: {states}\n" in printed
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_a_model_that_cannot_be_written_does_not_cost_the_record(tmp_path, monkeypatch):
    def fail(state, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(models, "save_file", fail)
    file, folder = tmp_path / "record.jsonl", tmp_path / "saved"
    options = ["--preset", "tiny", "--max-steps", "1", "--record", str(file), "--save", str(folder)]
    with pytest.raises(UserError, match="No space left .*what was measured is not lost"):
        scripts.get("01_baseline/train").load().main(options)
    assert len(read(file)[0]) == 1 and list(folder.iterdir()) == []


@pytest.mark.parametrize("wrong", ["config.json", "model.safetensors"])
def test_a_damaged_model_is_said_in_one_line(of_digits, wrong, tmp_path):
    folder = shutil.copytree(of_digits[0], tmp_path / "copy")
    for damaged in (b"", b"{", b'{"model": "resnet18", "classes": []}', b"[]"):
        (folder / wrong).write_bytes(damaged)
        with pytest.raises(UserError, match="no usable model"):
            models.load(folder)
    with pytest.raises(UserError, match="holds no model"):
        models.load(tmp_path / "nowhere")
