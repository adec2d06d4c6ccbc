"""Promise: with --resume a training goes on as if nothing had been; --save keeps its model.

No code is run that a file in that folder brings with it.
"""

import json

import numpy as np
import pytest
from conftest import run
from made import spoiled, textures
from PIL import Image
from sklearn.datasets import load_digits
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from shared.cli import UserError
from shared.images import models
from shared.records import scripts

OFTEN = ["--save-minutes", "1e-9"]  # checkpoints as often as possible
SAME = ["load", "test_accuracy", "val_accuracy", "train_accuracy", "first_loss", "last_loss"]


@pytest.mark.parametrize("n, name", [(1, "06_sgd/train"), (4, "11_llm/train")])
def test_losses_are_those_of_a_training_without_a_break(n, name, tmp_path):
    """SGD with a schedule, pictures that are cropped; Adam, sharded over four processes."""
    of_data = ["--limit", "60"] if n == 4 else ["--data", str(textures(tmp_path / "data", 100))]
    options, out = ["--preset", "tiny", "--epochs", "2", *of_data], tmp_path / "out.jsonl"
    saved = tmp_path / "saved"
    kept = [*options, "--save", str(saved), *OFTEN]
    trainings = [[0, options], [8, kept], [0, [*kept, "--resume"]]]
    run("tests/resumed.py", n, out, name, json.dumps(trainings))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    whole, resumed = [line for line in lines if isinstance(line, dict)]
    updates = [line for line in lines if isinstance(line, list)]
    losses = [{update: seen for k, update, seen in updates if k == i} for i in range(3)]
    assert list(losses[0]) == list(range(10)) and len(losses[0][0]) == n  # 5 in each epoch
    assert list(losses[1]) == list(range(8)) and list(losses[2]) == list(range(6, 10))
    assert losses[0] == {**losses[1], **losses[2]}
    assert {key: resumed[key] for key in SAME} == {key: whole[key] for key in SAME}
    assert (resumed["resumed_at"], whole["resumed_at"]) == (6, None)
    # What is read back from a file has storages of its own, without what shards share.
    parts = [record["train"]["breakdown_gb"] for record in (resumed, whole)]
    assert parts[0] == parts[1] if n == 1 else parts[0].keys() == parts[1].keys()
    assert not [*saved.glob("checkpoint-*")]
    if n == 4:
        model = AutoModelForSequenceClassification.from_pretrained(saved)
        tokens = AutoTokenizer.from_pretrained(saved)(["a good film"], return_tensors="pt")
        assert model(**tokens).logits.shape == (1, 2)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """06, its options, and the folder of --save after an interruption: with a checkpoint in it."""
    script, folder = scripts.get("06_sgd/train").load(), tmp_path_factory.mktemp("digits") / "saved"
    options = ["--preset", "tiny", "--max-steps", "24", "--save", str(folder), *OFTEN]

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(script.Meter, "validate", stop)
        script.main(options)
    return script, options, folder


def test_no_file_of_a_checkpoint_runs_code(interrupted, tmp_path):
    script, options, folder = interrupted
    [file] = folder.glob("checkpoint-*/*")
    for _ in spoiled(file, tmp_path / "marker"):
        with pytest.raises(UserError, match="process-0.pt is damaged .*; remove"):
            script.main([*options, "--resume"])
    assert not (tmp_path / "marker").exists()


def test_a_saved_model_names_pictures(interrupted, tmp_path):
    script, options, folder = interrupted
    record = script.main([*options, "--resume"])
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    raw, paths = load_digits(), [str(tmp_path / f"{i}.png") for i in range(40)]
    for path, picture in zip(paths, raw.images):
        Image.fromarray((picture * 255 / 16).astype(np.uint8)).save(path)
    printed = run("10_offload/classify.py", folder, *paths).splitlines()
    right = sum(line.startswith(f"{digit} (") for line, digit in zip(printed, raw.target))
    assert len(printed) == 40 and right / 40 > record["test_accuracy"] - 0.1
    for file in folder.iterdir():
        for _ in spoiled(file, tmp_path / "marker"):
            with pytest.raises(Exception):
                models.load(folder)
    assert not (tmp_path / "marker").exists()
