"""Promise: --resume continues a run as if it had not been interrupted; --save keeps its model.

Code in the saved files is never run.
"""

import json
import runpy

import numpy as np
import pytest
from conftest import run
from PIL import Image
from sample_files import spoiled, textures
from sklearn.datasets import load_digits
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from shared.lab.records import scripts

OFTEN = ["--save-minutes", "1e-9"]  # checkpoints as often as possible
SAME = ["load", "test_accuracy", "val_accuracy", "train_accuracy", "first_loss", "last_loss"]


def killed_and_resumed(n, name, at, folder, *options):
    """Train once without interruption and once killed after an update; compare the two runs.

    The losses of all updates, the saved bytes and, for one process, the peak memory must be the
    same.

    Args:
        n: number of processes.
        name: of the script.
        at: the update after which the processes are killed.
        folder: for the output; the killed run saves in folder/killed.
        options: of the script, for ten updates in two epochs.
    """

    def train(at, where, *more, code=0):
        out = folder / f"{where}.jsonl"
        keep = ["--preset", "tiny", "--epochs", 2, "--save", folder / where, *OFTEN, *more]
        run("tests/kill_and_resume.py", n, out, name, at, *options, *keep, code=code)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        return lines[-1], [line for line in lines if isinstance(line, list)]

    whole, losses = train(0, "whole")
    _, before = train(at, "killed", code=-9 if n == 1 else 1)
    [checkpoint] = (folder / "killed").glob("checkpoint-*[0-9]")
    assert len([*checkpoint.iterdir()]) == n
    last, seen = train(0, "killed", "--resume")
    first = (at - 1) // 3 * 3  # the last checkpoint; there is one after every third update
    assert [update for update, _ in losses] == [*range(10)] and len(losses[0][1]) == n
    assert before == losses[:at] and seen == [*before, *losses[first:]]
    assert (whole["resumed_at"], last["resumed_at"]) == (None, first)
    assert {key: last[key] for key in SAME} == {key: whole[key] for key in SAME}
    # Tensors read from a file have storages of their own; shards share some.
    parts = [record["train"]["breakdown_gb"] for record in (whole, last)]
    assert parts[0] == parts[1] if n == 1 else parts[0].keys() == parts[1].keys()
    kept = [{f.name: f.read_bytes() for f in (folder / w).iterdir()} for w in ("whole", "killed")]
    assert kept[0] == kept[1] and "config.json" in kept[0]


def test_killed_it_goes_on_as_if_nothing_had_been(tmp_path):
    """SGD with a schedule, cropped pictures."""
    data = textures(tmp_path / "data", 100)
    killed_and_resumed(1, "06_sgd/train", 8, tmp_path, "--data", data)


def test_killed_four_processes_go_on_with_their_shards(tmp_path):
    """Adam, texts, dropout."""
    killed_and_resumed(4, "11_llm/train", 8, tmp_path, "--limit", 60)
    saved = tmp_path / "killed"
    model = AutoModelForSequenceClassification.from_pretrained(saved)
    tokens = AutoTokenizer.from_pretrained(saved)(["a good film"], return_tensors="pt")
    assert model(**tokens).logits.shape == (1, 2) and model.config.dropout == 0.1


def interrupt(script, options):
    """Run a script until the end of its first epoch, and interrupt it there."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(script.Meter, "validate", stop)
        script.main(options)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """06, its options, and its --save folder with a checkpoint, after an interruption."""
    script, folder = scripts.get("06_sgd/train").load(), tmp_path_factory.mktemp("digits") / "saved"
    options = ["--preset", "tiny", "--max-steps", "24", "--save", str(folder), *OFTEN]
    interrupt(script, options)
    return script, options, folder


def test_no_file_of_a_checkpoint_runs_code(interrupted, tmp_path):
    script, options, folder = interrupted
    [file] = folder.glob("checkpoint-*/*")
    for _ in spoiled(file, tmp_path / "marker"):
        with pytest.raises(Exception):
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
    load = runpy.run_path("10_offload/classify.py")["load"]
    for file in folder.iterdir():
        for _ in spoiled(file, tmp_path / "marker"):
            with pytest.raises(Exception):
                load(folder)
    assert not (tmp_path / "marker").exists()
