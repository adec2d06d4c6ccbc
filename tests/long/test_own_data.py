"""Promise: a user's pictures and texts are read, or one line names the mistake.

So are the data sets and weights that this repository makes or downloads.
"""

import hashlib
import io
import os
import pickle
import shutil
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
from conftest import paint
from helpers.refusals import refused
from helpers.sample_files import textures
from PIL import Image

from shared.images import cli, data, models
from shared.lab.evidence import pretrain
from shared.lab.records import scripts
from shared.text import data as texts
from shared.text.roads import causal


def image_sets(source):
    args = SimpleNamespace(data=str(source), image_px=32, seed=1)
    return data.image_sets(args)


FORMS = {
    "grey.png": lambda file: Image.new("L", (9, 9)).save(file),
    "cmyk.jpg": lambda file: Image.new("CMYK", (9, 9), (128, 128, 128, 0)).save(file),
    "rgba.png": lambda file: Image.new("RGBA", (9, 9)).save(file),
    "long.PNG": lambda file: Image.new("RGB", (1, 900)).save(file),
}


def test_pictures_in_many_forms(tmp_path):
    folder = textures(tmp_path / "data", 24)
    for name, save in FORMS.items():
        save(folder / "dark" / name)
    os.rename(folder / "dark" / "grey.png", os.fsencode(folder / "dark") + b"/gr\xe4u.png")
    sets, classes = image_sets(folder)
    assert len(classes) == 2 and sum(map(len, sets)) == 24 + len(FORMS)
    for part in sets:
        for picture, label in part:
            assert picture.shape == (3, 32, 32) and label in (0, 1)


def torn(file):
    whole = io.BytesIO()
    Image.effect_noise((99, 99), 50).save(whole, "jpeg")
    file.write_bytes(whole.getvalue()[:600])


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"  # runs Ghostscript
UNREADABLE = {
    "torn.jpg": torn,
    "empty.png": lambda file: file.touch(),
    "program.png": lambda file: file.write_bytes(EPS),
    "dangling.jpg": lambda file: file.symlink_to("gone"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_picture_is_named_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", None)
    UNREADABLE[name](tmp_path / name)
    refused(f"{name} is not a readable picture", data.load, str(tmp_path / name))


PLACES = ("train/a", "train/b", "test/a", "test/c")
FOLDERS = [
    (lambda f: (f / "void").mkdir() or f / "void", "Couldn't find any class folder"),
    (lambda f: f / "a", "Couldn't find any class folder"),
    (lambda f: [paint(f / "few" / c, 2, 0) for c in "ab"] and f / "few", "too few to train"),
    (lambda f: f / "nowhere", "there is no such folder"),
    (lambda f: paint(f / "one" / "a", 20, 0) or f / "one", "there are 1 in train"),
    (lambda f: [paint(f / "each" / str(i), 1, 0) for i in range(20)] and f / "each", "20 in train"),
    (lambda f: [paint(f / "other" / p, 9, 0) for p in PLACES] and f / "other", "same in all parts"),
]


@pytest.mark.parametrize("make, said", FOLDERS)
def test_what_is_no_data_set_is_refused(make, said, tmp_path):
    for kind in "ab":
        paint(tmp_path / kind, 6, 0)
    refused(said, image_sets, make(tmp_path))


def test_cifar10_is_downloaded_and_read(tmp_path, monkeypatch):
    """40 + 10 pictures in the original format, with the expected checksums, and no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    kind, rng = torchvision.datasets.CIFAR10, np.random.default_rng(0)
    source = tmp_path / kind.base_folder
    source.mkdir()

    def write(name, content):
        (source / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((source / name).read_bytes()).hexdigest()]

    def batch(n):
        pixels = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
        return {"data": pixels, "labels": [i % 10 for i in range(n)]}

    meta = write("batches.meta", {"label_names": list("abcdefghij")})
    monkeypatch.setattr(kind, "train_list", [write(f"data_batch_{i}", batch(20)) for i in (1, 2)])
    monkeypatch.setattr(kind, "test_list", [write("test_batch", batch(10))])
    monkeypatch.setattr(kind, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    served = tmp_path / "served"
    served.mkdir()
    with tarfile.open(served / kind.filename, "w:gz") as tar:
        tar.add(source, kind.base_folder)
    download = "torchvision.datasets.utils.download_url"
    monkeypatch.setattr(download, lambda url, folder, *_: shutil.copytree(served, folder))
    (train, val, test), classes = image_sets("cifar10")
    assert (len(train), len(val), len(test), len(classes)) == (36, 4, 10, 10)
    assert not set(train.indices) & set(val.indices)
    assert test[3][0].shape == (3, 32, 32) and test[3][1] == 3


ROWS = "".join(f"some text,{i % 2}\n" for i in range(20))
LINES = "".join(f'{{"text": "t", "label": {i % 2}}}\n' for i in range(20))
TABLES = {
    "columns.jsonl": ('{"label": 1, "review": "a"}\n', "and a column text"),
    "one.csv": ("text,label\na,up\nb,up\n", "there must be two classes or more"),
    "each.csv": ("text,label\n" + "".join(f"a,{i}\n" for i in range(20)), "there are 20 in train"),
    "torn.jsonl": ('{"text": "a", "label": 1}\n{"text": "b", "la', "quotation mark in string"),
    "commas.csv": ("text,label\nwell, yes, no,0\na, b, c, d,1\n", "Expected 4 fields in line 3"),
    "latin.csv": ("text,label\ngr\udce4u,1\n", "can't decode byte 0xe4 in position 2"),
    "empty.csv": ("", "No columns to parse from file"),
    "empty.jsonl": ("", "is it empty?"),
    "header.csv": ("text,label\n", "corresponds to no data"),
    "table.xlsx": ("x", "files of this kind are not read; pass reviews"),
    "text.csv": (f"text,label\n{ROWS},1\n", "row 21 of train has the text ''; it must be"),
    "label.csv": (f"text,label\n{ROWS}a,\n", "row 21 of train has the label ''; it must be a name"),
    "score.csv": (f"text,label\n{ROWS}a,0.28\n", "the label '0.28'; it must be a name or a"),
    "number.csv": ("text,label\n5,1\n6,0\n", "row 1 of train has the text '5'; it must be"),
    "blank.jsonl": ('{"text": " ", "label": 1}\n', "row 1 of train has the text ' '; it must be"),
    "text.jsonl": (LINES + '{"label": 1}\n', "row 21 of train has the text 'None'"),
    "label.jsonl": (LINES + '{"text": "a"}\n', "row 21 of train has the label 'None'"),
    "list.jsonl": ('{"text": ["a"], "label": 1}\n', "row 1 of train has the text \"['a']\""),
    "labels.jsonl": ('{"text": "a", "label": [1]}\n', "row 1 of train has the label '[1]'"),
    "dict.jsonl": ('{"text": "a", "label": {"b": 1}}\n', "has the label \"{'b': 1}\""),
    "nan.jsonl": ('{"text": "a", "label": NaN}\n' * 2, "row 1 of train has the label"),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_no_table_of_texts_is_refused(name, tmp_path, capfd):
    content, said = TABLES[name]
    (tmp_path / name).write_text(content, errors="surrogateescape")
    assert name in refused(said, texts.read, str(tmp_path / name))
    assert name not in capfd.readouterr().err  # it is said once


@pytest.mark.parametrize("name", ["text.jsonl", "list.jsonl", "columns.jsonl"])
def test_what_is_no_text_is_refused_where_there_are_no_labels(name, tmp_path):
    (tmp_path / name).write_text(TABLES[name][0])
    refused(TABLES[name][1][:20], causal.read, str(tmp_path / name))


def test_a_folder_without_a_part_to_train_with_is_refused(tmp_path):
    (tmp_path / "test.csv").write_text("text,label\n" + ROWS)
    for module in (texts, causal):
        refused("there must be a part train", module.read, str(tmp_path))


def test_a_file_that_is_no_text_is_named(tmp_path):
    for kind in "ab":
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "1.txt").write_bytes(b"good" if kind == "a" else b"gr\xe4u")
    refused("b/1.txt is no text in UTF-8 ('utf-8' codec can't decode", texts.read, str(tmp_path))


def test_whole_numbers_and_names_are_classes(tmp_path):
    """So are numbers that pandas wrote with a point, and both in one file."""
    for i, kinds in enumerate((("1.0", "2.0"), ('"b"', "7"), ("true", "false"))):
        rows = [f'{{"text": "a text", "label": {kinds[n % 2]}}}\n' for n in range(20)]
        (tmp_path / f"{i}.jsonl").write_text("".join(rows))
        sets = texts.read(str(tmp_path / f"{i}.jsonl"))
        assert len(sets["train"].features["label"].names) == 2 and len(sets["train"]) == 16


def test_tables_are_read_as_they_are(tmp_path):
    rows = [(f'"No, NA" größer, {i}', ("10", "9", "NA")[i % 3]) for i in range(30)]
    quoted = "".join('"{}",{}\n'.format(t.replace('"', '""'), y) for t, y in rows)
    for part in ("train", "test"):
        (tmp_path / f"{part}.csv").write_text("text,label\n" + quoted, encoding="utf-8")
    sets = texts.read(str(tmp_path))
    assert [len(sets[part]) for part in texts.PARTS] == [27, 3, 30]
    assert [row["text"] for row in sets["test"]] == [text for text, _ in rows]
    assert sets["test"].features["label"].names == ["10", "9", "NA"]
    (tmp_path / "README.md").write_text("how, it, was made\n")  # which is no table
    assert len(texts.read(str(tmp_path))["test"]) == 30
    (tmp_path / "words.csv").write_text("text\nNA\nNone\n\nnull\n")
    assert causal.read(str(tmp_path / "words.csv"))["train"] == ["NA", "None", "null"]


def test_a_folder_like_aclimdb(tmp_path):
    for i in range(10):
        for part in ("train/neg", "train/pos", "test/neg", "test/pos", "train/unsup"):
            (tmp_path / part).mkdir(parents=True, exist_ok=True)
            (tmp_path / part / f"{i}.txt").write_text(f"review {part}/{i} – gut", encoding="utf-8")
    sets = texts.read(str(tmp_path))
    assert [len(sets[part]) for part in texts.PARTS] == [18, 2, 20]
    assert sets["test"].features["label"].names == ["neg", "pos"]
    for part in texts.PARTS:
        for row in sets[part]:
            assert row["text"].split("/")[1] == ("neg", "pos")[row["label"]]


def test_the_tiny_weights_recognise_characters_that_they_never_saw():
    pictures, labels = pretrain.characters(500, seed=99)
    assert pictures.shape == (500, 8, 8) and len(labels.unique()) > 20
    assert set((pictures * 16 % 1).flatten().tolist()) == {0.0}  # like the digits: counts of 16
    of_characters = SimpleNamespace(classes=pretrain.CHARACTERS)
    model = models.vit(SimpleNamespace(model="vit_tiny", image_px=32), of_characters)
    model.load_state_dict(torch.load(models.TINY_WEIGHTS, weights_only=True))
    with torch.no_grad():
        predicted = model(data.enlarge(pictures, 32)).argmax(1)
    assert (predicted == labels).float().mean() > 0.9


def test_published_weights_get_a_new_head(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    imagenet = torchvision.models.vit_b_16().state_dict()
    load = "torchvision.models._api.load_state_dict_from_url"
    monkeypatch.setattr(load, lambda url, check_hash, **_: imagenet if check_hash else None)
    argv = ["--preset", "tiny", "--model", "vit_b_16", "--data", "fake"]
    args = cli.parse(scripts.get("01_baseline/train").path, argv, 64)
    ten_classes = SimpleNamespace(classes=range(10))
    state = torch.load(models.weights(args, ten_classes), weights_only=True)
    assert state["heads.head.weight"].shape == (10, 768) and state.keys() == imagenet.keys()
    assert torch.equal(state["conv_proj.weight"], imagenet["conv_proj.weight"])
