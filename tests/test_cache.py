"""Promise: a damaged file in the cache is made again, and one line says so; nothing runs its code.

What cannot be made again is named in one line.
"""

import functools
import json
import os
import shutil

import pytest
import torch
from conftest import NAMES, PLAIN, TEXT, read_json, run
from loads import Evil

from shared.common import files, scripts, weights
from shared.common.errors import UserError
from shared.images import models
from shared.text import data
from shared.text import models as text_models

RANDOM = ["--preset", "tiny", "--data", "fake", "--no-pretrained"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A cache of its own: (TORCH_HOME, options of 01, the file with its weights, its contents)."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("TORCH_HOME", str(folder))
        script = scripts.get("01_baseline/train")
        args = script.load().cli.parse(script.path, RANDOM, batch_size=64)
        args.num_classes = 10
        path = models.checkpoint(args)
        yield args, path, path.read_bytes()


def saved(content, **how):
    """Returns a way to damage a file: something else was saved there."""
    return lambda path: torch.save(content(path), path, **how)


def replaced(make):
    """Returns a way to damage a file: something that is no file is there instead."""

    def replace(path):
        path.unlink()
        make(path)

    return replace


def state(path, change=lambda state: state):
    return change(torch.load(path, weights_only=True))


def without_head(state):
    return {name: t for name, t in state.items() if not name.startswith("heads.")}


def filled(path):
    path.mkdir()
    (path / "x").write_text("x")


DAMAGES = {
    "empty": (lambda f: f.write_bytes(b""), "no file of weights"),
    "short": (lambda f: f.write_bytes(f.read_bytes()[:1000]), "is damaged"),
    "half": (lambda f: os.truncate(f, f.stat().st_size // 2), "is damaged"),
    "without its end": (lambda f: os.truncate(f, f.stat().st_size - 1), "is damaged"),
    "zeros": (lambda f: f.write_bytes(bytes(f.stat().st_size)), "no file of weights"),
    "garbage": (lambda f: f.write_bytes(bytes(range(256)) * 9), "no file of weights"),
    "zip of garbage": (lambda f: f.write_bytes(weights.ZIP + bytes(9999)), "is damaged"),
    "a folder": (replaced(filled), "is a folder"),
    "a pipe": (replaced(os.mkfifo), "is no file"),
    "a link to nowhere": (
        replaced(lambda f: f.symlink_to("/nowhere")),
        "a link that leads nowhere",
    ),
    "a link to itself": (replaced(lambda f: f.symlink_to(f)), "a link that leads nowhere"),
    "other keys": (saved(lambda f: {"a": torch.ones(3)}), "weights of another model"),
    "a missing key": (saved(lambda f: state(f, without_head)), "weights of another model"),
    "other shapes": (
        saved(lambda f: {name: t[:1] for name, t in state(f).items()}),
        "weights of another model",
    ),
    "another type": (
        saved(lambda f: {name: t.bfloat16() for name, t in state(f).items()}),
        "weights of another model",
    ),
    "wrapped": (saved(lambda f: {"model": state(f)}), "weights of another model"),
    "no dict": (saved(lambda f: torch.ones(3)), "holds no weights"),
    "numbers": (saved(lambda f: dict.fromkeys(state(f), 1)), "weights of another model"),
    "an old format": (saved(state, _use_new_zipfile_serialization=False), "no file of weights"),
    "code": (saved(lambda f: Evil(f.parent / "marker")), "is damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_made_again(home, capsys, monkeypatch, damage):
    args, path, contents = home
    monkeypatch.setenv("TORCH_HOME", str(path.parents[1]))
    # What others left there must not be in the way.
    filled(path.with_suffix(".part"))
    shutil.rmtree(f"{path}.lock", ignore_errors=True)
    files.remove(f"{path}.lock")
    filled(path.parent / f"{path.name}.lock")
    spoil, said = DAMAGES[damage]
    spoil(path)
    assert models.checkpoint(args) == path
    assert path.is_file() and path.read_bytes() == contents
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"- {path} ") and said in line and line.endswith(": it is made again")
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}
    assert models.checkpoint(args) == path and not capsys.readouterr().out


def test_a_good_file_is_looked_at_once(home, monkeypatch):
    args, path, _ = home
    looks = []
    wrong = functools.partial(lambda original, *a, **k: looks.append(a) or original(*a, **k))
    monkeypatch.setattr(models, "wrong", functools.partial(wrong, models.wrong))
    monkeypatch.setattr(files, "lock", None)  # and without writing anything
    monkeypatch.setattr(files, "_usable", {})
    for _ in range(3):
        models.checkpoint(args)
    assert len(looks) == 1
    os.utime(path)
    models.checkpoint(args)
    assert len(looks) == 2


def test_a_look_reads_no_weights(tmp_path):
    """A file larger than memory and disk: there are no weights in it."""
    file, shape = tmp_path / "large.pt", (1 << 20, 1 << 20)
    with torch.serialization.skip_data():
        torch.save({"weight": torch.empty(8, 8)}, file)
    model = functools.partial(torch.nn.Linear, 8, 8, bias=False)
    assert weights.wrong(file, model) is None
    build = functools.partial(torch.nn.Linear, *shape, bias=False)
    assert "another model" in weights.wrong(file, build)


def test_a_disk_that_is_full_leaves_no_half_file(home, monkeypatch, tmp_path):
    args, _, _ = home
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="cannot write .*No space left.*set TORCH_HOME"):
        models.checkpoint(args)
    assert [file.suffix for file in (tmp_path / "memory-ladder").iterdir()] == [".lock"]


def test_tiny_weights_that_are_damaged(home, monkeypatch, tmp_path):
    args = home[0].__class__(**{**vars(home[0]), "pretrained": True})
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file = tmp_path / "vit_tiny.pt"
    monkeypatch.setattr(models, "TINY_WEIGHTS", file)
    for spoil in (
        lambda: None,
        lambda: file.write_bytes(b"torn"),
        lambda: torch.save({"a": torch.ones(2)}, file),
        lambda: torch.save(Evil(tmp_path / "marker"), file),
        lambda: (file.unlink(), file.mkdir()),
    ):
        spoil()
        with pytest.raises(UserError, match="vit_tiny.pt .*git checkout") as error:
            models.checkpoint(args)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "marker").exists()


def test_no_script_runs_what_a_file_brings_with_it(tmp_path):
    run("tests/loads.py", tmp_path)
    expected = dict.fromkeys(NAMES + PLAIN + TEXT, ["refused", "built", False])
    assert read_json(tmp_path / "out.json") == expected


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Tokenized texts in a cache of their own: (options, their folder, their shape)."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("texts")
        patch.setenv("TORCH_HOME", str(folder))
        rows = [{"text": f"text {i}", "label": i % 2} for i in range(20)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        argv = ["--preset", "tiny", "--data", str(folder / "rows.jsonl")]
        script = scripts.get("11_llm/before")
        args = script.load().cli.parse(script.path, argv, batch_size=12)
        sets, _ = data.prepared(args)
        (made,) = (path for path in (folder / "memory-ladder/tokenized").iterdir() if path.is_dir())
        yield args, made, shape(sets)


def shape(sets):
    """Returns the labels and lengths of texts; a new vocabulary may number its words otherwise."""
    return sets["train"]["label"][:], [len(ids) for ids in sets["train"]["input_ids"]]


def in_place_of(name, make):
    def spoil(folder):
        path = folder / name
        files.remove(path)
        make(path)

    return spoil


def nothing(path):
    pass


def torn(path):
    path.write_bytes(b"torn")


ARROW = "data/train/data-00000-of-00001.arrow"
SPOILED = [
    (ARROW, nothing),
    (ARROW, torn),
    (ARROW, os.mkfifo),
    (ARROW, lambda path: path.write_bytes(bytes(3000))),
    ("data/train/state.json", torn),
    ("data/test/dataset_info.json", torn),
    ("data/dataset_dict.json", nothing),
    ("data/dataset_dict.json", lambda path: path.write_text('{"splits": ["train"]}')),
    ("data", torn),
    ("tokenizer/tokenizer.json", nothing),
    ("tokenizer/tokenizer.json", torn),
    ("tokenizer/tokenizer_config.json", lambda path: path.write_text("{}")),
    ("tokenizer/tokenizer_config.json", os.mkfifo),
    ("tokenizer", os.mkfifo),
    ("contents.json", torn),
    ("contents.json", os.mkfifo),
    ("contents.json", lambda path: path.write_text("[" * 100_000)),
    ("", torn),
    ("", os.mkfifo),
    ("", os.mkdir),
    ("", lambda path: path.symlink_to("/nowhere")),
]


@pytest.mark.parametrize("name, make", SPOILED)
def test_damaged_tokenized_texts_are_made_again(texts, capsys, monkeypatch, name, make):
    args, folder, train = texts
    monkeypatch.setenv("TORCH_HOME", str(folder.parents[2]))
    in_place_of(name, make)(folder)
    torn(folder.with_suffix(".part"))
    files.remove(f"{folder}.lock")
    os.mkdir(f"{folder}.lock")
    sets, tokenizer = data.prepared(args)
    assert shape(sets) == train and tokenizer.pad_token_id == 0
    assert capsys.readouterr().out == f"- {folder} is damaged: it is made again\n"
    data.prepared(args)
    assert not capsys.readouterr().out


def test_texts_with_a_false_length_are_made_again(texts, monkeypatch):
    """Arrow reads lengths from the file, and follows them out of it."""
    args, folder, train = texts
    monkeypatch.setenv("TORCH_HOME", str(folder.parents[2]))
    arrow = folder / ARROW
    offsets = b"".join((4 * i).to_bytes(4, "little") for i in range(5))  # each text has 4 tokens
    content = arrow.read_bytes()
    assert content.count(offsets) == 1
    arrow.write_bytes(content.replace(offsets, b"\0\0\0\x7f".join(5 * [b""]) + bytes(4)))
    assert arrow.stat().st_size == len(content)
    assert shape(data.prepared(args)[0]) == train


def test_damaged_weights_of_a_language_model(texts, capsys, monkeypatch):
    args, folder, _ = texts
    monkeypatch.setenv("TORCH_HOME", str(folder.parents[2]))
    path = text_models.checkpoint(args)
    contents = path.read_bytes()
    torch.save({"a": torch.ones(2)}, path)
    assert text_models.checkpoint(args).read_bytes() == contents
    assert "another model: it is made again" in capsys.readouterr().out
