"""Promise: --resume continues a run as if it had not been interrupted; --save keeps its model.

Code in the saved files is never run.
"""

import runpy

import numpy as np
import pytest
from conftest import run
from helpers.resuming import OFTEN, interrupt, killed_and_resumed
from helpers.sample_files import spoiled, textures
from PIL import Image
from sklearn.datasets import load_digits
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from shared.lab.records import scripts


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
        for _ in spoiled(file, tmp_path / "marker"):
            with pytest.raises(Exception):
                load(folder)
    assert not (tmp_path / "marker").exists()
