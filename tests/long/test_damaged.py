"""Promise: a damaged file in the cache is made again, and one line says so; nothing runs its code.

What cannot be made again is named in one line. On a full disk, nothing measured is lost.
"""

import contextlib
import json
import os
import resource
import signal

import pytest
import torch
import torchvision
import transformers
from conftest import NAMES, PLAIN, TEXT, read_json, run
from made import Evil

from shared.cli import UserError
from shared.common import writing
from shared.images import cli, models
from shared.records import scripts
from shared.text import data
from shared.text import models as text_models
from shared.text.tokenizer import new_tokenizer

BASELINE, BEFORE = scripts.get("01_baseline/train"), scripts.get("11_llm/before")
TINY = ["--preset", "tiny"]


def one_line(error):
    return "\n" not in str(error.value)


def test_no_script_runs_what_a_file_brings_with_it(tmp_path):
    run("tests/long/foreign.py", tmp_path)
    expected = dict.fromkeys(NAMES + PLAIN + TEXT, ["refused", False])
    assert read_json(tmp_path / "out.json") == expected


def saved(change):
    """Returns a way to damage a file of weights: something else is saved there."""
    return lambda f: torch.save(change(torch.load(f, weights_only=True)), f)


DAMAGES = {
    "empty": (lambda f: f.write_bytes(b""), "no file of weights"),
    "half": (lambda f: os.truncate(f, f.stat().st_size // 2), "is damaged"),
    "garbage": (lambda f: f.write_bytes(bytes(range(256)) * 9), "no file of weights"),
    "a missing key": (saved(lambda w: dict(list(w.items())[1:])), "weights of another model"),
    "bf16": (saved(lambda w: {n: t.bfloat16() for n, t in w.items()}), "weights of another model"),
    "code": (lambda f: torch.save(Evil(f.parent / "marker"), f), "is damaged"),
}


def test_damaged_weights_are_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    argv = [*TINY, "--data", "fake", "--no-pretrained"]
    args = cli.parse(BASELINE.path, argv, batch_size=64)
    args.num_classes = 10
    path = models.checkpoint(args)
    contents = path.read_bytes()
    for spoil, said in DAMAGES.values():
        spoil(path)
        assert models.checkpoint(args) == path and path.read_bytes() == contents
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"- {path} ") and said in line and line.endswith("is made again")
        assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The file that torch.hub keeps ImageNet's weights in; how to say that they are elsewhere."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    found = torchvision.models.get_model_weights("vit_b_16").DEFAULT
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)

    def at(address):
        monkeypatch.setattr(type(found), "url", property(lambda self: address))

    return folder / found.url.rsplit("/", 1)[1], at


def test_published_weights_get_a_new_head(published):
    """The real loading code, on a file with the layout of torchvision's and its own checksum."""
    file, at = published
    imagenet = torchvision.models.vit_b_16().state_dict()
    torch.save(imagenet, file)
    name = f"vit_b_16-{models._sha256(file)[:8]}.pth"
    file.rename(file.with_name(name))
    at(f"http://127.0.0.1:9/{name}")
    argv = [*TINY, "--model", "vit_b_16", "--data", "fake"]
    args = cli.parse(BASELINE.path, argv, batch_size=64)
    args.num_classes = 10
    state = torch.load(models.checkpoint(args), weights_only=True)
    assert state["heads.head.weight"].shape == (10, 768)
    assert torch.equal(state["conv_proj.weight"], imagenet["conv_proj.weight"])
    assert state.keys() == imagenet.keys()


def test_published_weights_that_are_damaged(published, web):
    file, at = published
    file.write_bytes(b"torn")
    with pytest.raises(UserError, match="is damaged .*delete it"):
        models._imagenet_weights("vit_b_16")
    file.unlink()
    (web[0] / file.name).write_bytes(b"torn")
    at(f"{web[1]}/{file.name}")
    with pytest.raises(UserError, match="the download of .* was damaged"):
        models._imagenet_weights("vit_b_16")


def test_damaged_tokenized_texts_are_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    rows = [{"text": f"text {i}", "label": i % 2} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = [*TINY, "--data", str(tmp_path / "rows.jsonl")]
    args = BEFORE.load().cli.parse(BEFORE.path, argv, batch_size=12)
    texts = data.prepared(args)[0]["train"][:]
    (folder,) = (p for p in (tmp_path / "memory-ladder" / "tokenized").iterdir() if p.is_dir())
    arrow = folder / "data/train/data-00000-of-00001.arrow"
    for file, contents in (
        (arrow, None),
        (arrow, b"torn"),
        (arrow, bytes(3000)),
        (folder / "data" / "dataset_dict.json", None),
        (folder / "tokenizer" / "tokenizer.json", b"torn"),
        (folder / "tokenizer" / "tokenizer_config.json", b"{}"),
        (folder / "contents.json", b"torn"),
    ):
        file.unlink()
        if contents is not None:
            file.write_bytes(contents)
        sets, tokenizer = data.prepared(args)
        found = sets["train"][:]  # a new vocabulary may number the words otherwise
        assert found["label"] == texts["label"] and tokenizer.pad_token_id == 0
        assert list(map(len, found["input_ids"])) == list(map(len, texts["input_ids"]))
        assert capsys.readouterr().out == f"- {folder} is damaged: it is made again\n"
    path = text_models.checkpoint(args)
    contents = path.read_bytes()
    torch.save({"a": torch.ones(2)}, path)
    assert text_models.checkpoint(args).read_bytes() == contents
    assert "another model: it is made again" in capsys.readouterr().out


def test_a_model_of_texts_that_is_damaged_or_without_tokenizer(tmp_path):
    table, folder = tmp_path / "table.csv", tmp_path / "bert"
    table.write_text("text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(20)))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.BertConfig(vocab_size=200, **sizes)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    argv = [*TINY, "--model", str(folder), "--data", str(table)]
    with pytest.raises(UserError, match="there is no tokenizer beside the weights"):
        BEFORE.load().main(argv)
    new_tokenizer(["good bad word"]).save_pretrained(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match="this folder holds no usable model"):
        BEFORE.load().main(argv)
    classify = scripts.Script("11_llm/classify", "", "", None, False).load()
    with pytest.raises(UserError, match="holds no usable classifier"):
        classify.main([str(folder), "x"])
    with pytest.raises(UserError, match="holds no model; pass a folder that 11_llm/train.py"):
        classify.main([str(tmp_path), "x"])


@contextlib.contextmanager
def full_disk():
    """No file can grow beyond 5,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_on_a_full_disk_files_are_whole_or_as_they_were(tmp_path):
    file, folder = tmp_path / "f.json", tmp_path / "saved"
    writing.write_text(file, "old")
    folder.mkdir()
    (folder / "config.json").write_text("old")
    with full_disk():
        with pytest.raises(UserError, match=f"cannot write {file}") as error:
            writing.write_text(file, "new" * 9000)
        with pytest.raises(UserError, match="but the model is"):
            with writing.whole_folder(folder, "but the model is") as part:
                (part / "config.json").write_text("new")
                (part / "model.safetensors").write_text("x" * 9000)
    assert one_line(error) and file.read_text() == (folder / "config.json").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2 and len(list(folder.iterdir())) == 1
