"""Promise: what can go wrong with --save and --resume is said, and costs no training."""

import errno
import shutil

import pytest
import torch
from alone import losses
from conftest import read_json
from made import textures

from shared import saving
from shared.cli import UserError
from shared.common.kept import CHECKPOINT, checkpoints
from shared.images import data, models
from shared.records import scripts
from shared.records.record import read

TINY = ["--preset", "tiny"]
OFTEN = ["--save-minutes", "1e-9"]  # checkpoints as often as possible


def interrupt(script, options, monkeypatch):
    """Runs a script until its first epoch is over, and stops it there."""

    def stop(meter, accuracy):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(script.Meter, "end_epoch", stop)
        script.main(options)


def test_what_is_wrong_is_said_in_one_line(tmp_path, monkeypatch):
    folder, script = tmp_path / "saved", scripts.get("06_sgd/train").load()
    options = [*TINY, "--max-steps", "12", "--save", str(folder), *OFTEN]
    interrupt(script, options, monkeypatch)

    def refused(said, options):
        with pytest.raises(UserError, match=said) as error:
            script.main(options)
        assert "\n" not in str(error.value)

    refused("add --resume", options)
    refused("--save-minutes is about what --save", [*TINY, "--save-minutes", "3"])
    refused("has seed 123, this one 5", [*options, "--resume", "--seed", "5"])
    refused("has updates 12, this one 13", [*options, "--resume", "--max-steps", "13"])
    [checkpoint] = checkpoints(folder)
    (checkpoint / "process-0.safetensors").unlink()
    refused("is damaged", [*options, "--resume"])
    shutil.rmtree(checkpoint)
    (folder / "letter.txt").write_text("Dear")
    refused("files in it that are no model", [*options, "--resume"])
    (folder / "letter.txt").rename(folder / "config.json")
    refused("has ended", [*options, "--resume"])
    refused("choose another folder", [*TINY, "--save", str(folder / "config.json")])


def test_resuming_without_a_checkpoint_begins_anew(tmp_path, capsys):
    options = [*TINY, "--max-steps", "2", "--save", str(tmp_path / "new"), "--resume"]
    record = scripts.get("01_baseline/plain").load().main(options)
    assert "beginning anew" in capsys.readouterr().out
    assert record["steps"] == 2 and record["resumed_at"] is None
    assert read_json(tmp_path / "new" / "config.json")["classes"] == data.DIGITS


def test_checkpoints_do_not_change_what_a_training_holds(tmp_path):
    script, options = scripts.get("06_sgd/train").load(), [*TINY, "--max-steps", "12"]
    with_them = script.main([*options, "--save", str(tmp_path / "saved"), *OFTEN])
    record = script.main(options)
    for key in ("load", "train", "first_loss", "last_loss", "test_accuracy"):
        assert with_them[key] == record[key], key
    weights = record["train"]["breakdown_gb"]["parameters"]
    assert with_them["save"]["device_peak_gb"] == pytest.approx(weights, rel=0.01)


def test_the_state_of_a_gradient_scaler_is_kept(tmp_path, monkeypatch):
    """On a GPU, Fabric's scaler is kept by Saving, and that of 02_mixed_precision/plain by main."""

    def new():
        script = scripts.get("02_mixed_precision/plain").load()
        script.SCALER = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
        return script

    options = [*TINY, "--max-steps", "12", "--save", str(tmp_path / "saved"), *OFTEN]
    interrupt(new(), options, monkeypatch)
    resumed = new()
    assert resumed.main([*options, "--resume"])["resumed_at"] == 10
    assert resumed.SCALER.get_scale() == 8.0 * 2**4  # doubled after every third of 12 updates


@pytest.mark.parametrize("name", ["06_sgd/adam_8bit", "06_sgd/adam_in_backward"])
def test_the_states_of_unusual_optimizers_are_kept(name, tmp_path, monkeypatch):
    """Quantized tensors and a learning rate that is a tensor; an optimizer for every weight."""
    monkeypatch.setattr(saving, "AGREE", 4)  # so that it is time for a checkpoint
    whole, _ = losses(scripts.get(name).load(), "--max-steps", "6")
    options = ["--max-steps", "6", "--save", str(tmp_path / "saved"), *OFTEN]
    interrupt(scripts.get(name).load(), [*TINY, *options], monkeypatch)
    again, record = losses(scripts.get(name).load(), *options, "--resume")
    assert record["resumed_at"] == 4 and again == whole[4:]


def test_a_checkpoint_that_cannot_be_written_ends_no_training(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "saved"
    in_the_way = (folder / CHECKPOINT.format(10)).with_suffix(".part") / "tensors"
    in_the_way.mkdir(parents=True)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    options = [*TINY, "--max-steps", "12", "--save", str(folder), *OFTEN]
    record = scripts.get("06_sgd/train").load().main(options)
    assert "no checkpoint after update 10: File exists" in capsys.readouterr().out
    assert record["steps"] == 12 and record["save"] is None


def test_a_model_that_cannot_be_written_does_not_cost_the_record(tmp_path, monkeypatch):
    def fail(state, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(models, "save_file", fail)
    file, folder = tmp_path / "record.jsonl", tmp_path / "saved"
    options = [*TINY, "--max-steps", "1", "--record", str(file), "--save", str(folder)]
    with pytest.raises(UserError, match="No space left .*what was measured is not lost"):
        scripts.get("01_baseline/train").load().main(options)
    assert len(read(file)[0]) == 1 and list(folder.iterdir()) == []


def test_classify_reads_pictures_as_an_evaluation_does(tmp_path):
    pictures = textures(tmp_path / "data", 40)
    folder = tmp_path / "saved"
    options = [*TINY, "--data", str(pictures), "--max-steps", "1", "--save", str(folder)]
    scripts.get("06_sgd/train").load().main(options)
    _, made = models.load(folder)
    test = data.image_folder(pictures, made.image_px, seed=0)[0][2]
    paths = [test.source.paths[i] for i in test.indices]
    assert made.cropped and made.classes == ["dark", "light"]
    assert torch.equal(data.read(paths, made), torch.stack([x for x, _ in test]))
    with pytest.raises(UserError, match="holds no model"):
        models.load(tmp_path / "nowhere")
