"""Promise: pictures and texts as people have them are read, or one line names what is wrong.

Also the data sets and weights that this repository makes or downloads.
"""

import hashlib
import io
import json
import os
import pickle
import tarfile
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
import torchvision
from conftest import paint
from made import textures
from PIL import Image

from shared.cli import UserError
from shared.common import mapping
from shared.evidence import pretrain, speed
from shared.images import data, folders, models
from shared.images.pictures import NORMALIZE, Files, Pictures
from shared.text import reviews, sources


def image_sets(source):
    return data.image_sets(SimpleNamespace(data=str(source), image_px=32, seed=1))


FORMS = {
    "16 bits.png": lambda file: Image.fromarray(np.full((9, 9), 0x80FF, np.uint16)).save(file),
    "grey.png": lambda file: Image.new("L", (9, 9)).save(file),
    "cmyk.jpg": lambda file: Image.new("CMYK", (9, 9), (128, 128, 128, 0)).save(file),
    "rgba.png": lambda file: Image.new("RGBA", (9, 9)).save(file),
    "long.PNG": lambda file: Image.new("RGB", (1, 900)).save(file),
    "moving.gif": lambda f: Image.new("P", (9, 9)).save(f, save_all=True, append_images=[]),
}


def test_pictures_in_many_forms(tmp_path):
    folder = textures(tmp_path / "data", 24)
    for name, save in FORMS.items():
        save(folder / "dark" / name)
    os.rename(folder / "dark" / "grey.png", os.fsencode(folder / "dark") + b"/gr\xe4u.png")
    sets, classes, _ = image_sets(folder)
    source = sets[0].source
    assert len(classes) == 2 and len(source.paths) == 24 + len(FORMS)
    for i, path in enumerate(source.paths):
        assert source.resized(i, 20).shape == (3, 20, 20)
        if path.endswith("16 bits.png"):
            assert source.resized(i, 20).unique().tolist() == [0x80]  # scaled, not cut off


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
    with pytest.raises(UserError, match=f"{name} is not a readable picture") as error:
        Files([str(tmp_path / name)]).resized(0, 32)
    assert "\n" not in str(error.value)


FOLDERS = [
    (lambda f: (f / "void").mkdir() or f, "every class needs a folder"),
    (lambda f: f / "a", "every class needs a folder"),
    (lambda f: paint(f / "solo" / "red", 20, 0) or f / "solo", "red is the only class"),
    (lambda f: [paint(f / "few" / c, 2, 0) for c in "ab"] and f / "few", "10 is the least"),
    (lambda f: [paint(f / "x/train" / c, 9, 0) for c in "ab"] and f / "x", "takes train and test"),
    (lambda f: (f / "b" / "up").symlink_to("..") or f, "b/up is a link back to a folder"),
    (
        lambda f: [(f / "a" / f"{i}.txt").touch() for i in range(999)] and f,
        "no folder of pictures.*first 601 files",
    ),
]


@pytest.mark.parametrize("make, said", FOLDERS)
def test_what_is_no_data_set_is_refused(make, said, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "ENOUGH", 600)
    for kind in "ab":
        paint(tmp_path / kind, 6, 0)
    with pytest.raises(UserError, match=said) as error:
        image_sets(make(tmp_path))
    assert "\n" not in str(error.value)


def test_a_random_crop_is_another_one_in_every_epoch(tmp_path):
    source = Files(sorted(textures(tmp_path, 4).glob("*/*.png")))
    cropped = Pictures(source, [0] * 4, range(4), 224, seed=5)
    corners = [cropped._corner(epoch, 3, 32) for epoch in range(2000)]
    assert len(set(corners)) > 800 and {x for c in corners for x in c} == set(range(33))
    top, left = corners[2]
    part = source.resized(3, 256)[:, top : top + 224, left : left + 224]
    assert torch.allclose(cropped[2, 3][0], NORMALIZE(part / 255), atol=1e-5)
    assert min(speed.main(["--images", "5", "--image-px", "32", "--batch-size", "2"])) > 0


def test_cifar10_is_downloaded_and_read(web, tmp_path, monkeypatch):
    """40 + 10 pictures in the original format. Their checksums are those that are expected."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    kind, rng = torchvision.datasets.CIFAR10, np.random.default_rng(0)
    source = web[0] / kind.base_folder
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
    archive = web[0] / kind.filename
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, kind.base_folder)
    whole = archive.read_bytes()
    monkeypatch.setattr(kind, "url", f"{web[1]}/{archive.name}")
    monkeypatch.setattr(kind, "tgz_md5", hashlib.md5(whole).hexdigest())
    archive.write_bytes(whole[:-10])
    with pytest.raises(UserError, match="damaged"):
        image_sets("cifar10")
    archive.write_bytes(whole)
    for where in ("cifar10", web[0]):  # downloaded, and unpacked by a user
        (train, val, test), classes, name = image_sets(where)
        assert (len(train), len(val), len(test), len(classes), name) == (36, 4, 10, 10, "cifar10")
        assert not set(train.indices) & set(val.indices)
        assert test[3][0].shape == (3, 32, 32) and test[3][1] == 3


TABLES = {
    "empty.csv": ("", "the file is empty; it must be CSV with the columns text and label"),
    "columns.jsonl": ('{"label": 1, "review": "a"}\n', "there is no column text, only label, rev"),
    "numbers.csv": ("text,label\n" + "".join(f"a,{i}.5\n" for i in range(50)), "are no classes"),
    "gap.csv": ("text,label\na,up\nb,\n", "row 2 has no label; mend or remove it"),
    "one.csv": ("text,label\na,up\nb,up\n", "every label is up; there must be two classes"),
    "torn.jsonl": ('{"text": "a", "label": 1}\n{"text": "b", "la', "cannot be read ("),
    "commas.csv": ("text,label\nwell, yes, no,0\na, b, c,1\n", "a comma must be in quotes"),
    "table.xlsx": ("x", "the name of a file must end in .csv or .jsonl"),
    "utf16.csv": ("text,label\na,up\n".encode("utf-16"), "cannot be read ('utf-8' codec can't"),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_no_table_of_texts_is_refused(name, tmp_path):
    content, said = TABLES[name]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        sources.source(SimpleNamespace(data=str(file)))[2]()
    assert said in str(error.value) and "\n" not in str(error.value)


def test_tables_are_read_as_they_are(tmp_path):
    rows = [(f'"No, NA"\u2028 größer, {i}', ("10", "9", "NA")[i % 3]) for i in range(30)]
    quoted = "".join('"{}",{}\n'.format(t.replace('"', '""'), y) for t, y in rows)
    found = (json.dumps({"label": y, "text": t}, ensure_ascii=False) for t, y in rows)
    lines = "".join(f"{line}\n" for line in found)
    (tmp_path / "train.csv").write_text("text,label\n" + quoted, encoding="utf-8")
    (tmp_path / "test.jsonl").write_text(lines, encoding="utf-8")
    sets = sources.source(SimpleNamespace(data=str(tmp_path)))[2]()
    assert [len(sets[part]) for part in sources.PARTS] == [27, 3, 30]
    names = sets["train"].features["label"].names
    assert names[:2] == ["9", "10"] or names[1:] == ["9", "10"]  # in their natural order
    assert [(r["text"], names[r["label"]]) for r in sets["test"]] == rows


def test_a_folder_like_aclimdb(tmp_path):
    for i in range(10):
        for part in ("train/neg", "train/pos", "test/neg", "test/pos", "train/unsup"):
            (tmp_path / part).mkdir(parents=True, exist_ok=True)
            (tmp_path / part / f"{i}.txt").write_text(f"review {part}/{i} – gut", encoding="utf-8")
    sets = sources.from_folder(tmp_path)
    assert [len(sets[part]) for part in sources.PARTS] == [18, 2, 20]
    assert sets["test"].features["label"].names == ["neg", "pos"]
    for part in sources.PARTS:
        for row in sets[part]:
            assert row["text"].split("/")[1] == ("neg", "pos")[row["label"]]
    (tmp_path / "test" / "neg" / "1.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="1.txt is not UTF-8 text"):
        sources.from_folder(tmp_path)


def test_made_up_reviews_mean_what_their_label_says():
    for sentence, good in zip(*reviews.reviews(1000)):
        at, last = max((sentence.rfind(word), word) for word in reviews.GOOD + reviews.BAD)
        clause = sentence[:at].replace(";", ",").split(",")[-1].split(" and ")[-1]
        denied = any(n.split("{}")[0].strip() in clause for n in reviews.NEGATIONS)
        assert good == ((last in reviews.GOOD) != denied), sentence


def test_the_tiny_weights_recognise_characters_that_they_never_saw():
    pictures, labels = pretrain.characters(500, seed=99)
    assert pictures.shape == (500, 8, 8) and len(labels.unique()) > 20
    assert set((pictures * 16 % 1).flatten().tolist()) == {0.0}  # as the digits: counts of 16
    sizes = {"image_px": models.TINY_PX, "num_classes": len(pretrain.CHARACTERS)}
    model = models.vit(SimpleNamespace(model="vit_tiny", **sizes))
    model.load_state_dict(torch.load(models.TINY_WEIGHTS, weights_only=True))
    with torch.no_grad():
        predicted = model(data.enlarge(pictures, models.TINY_PX)).argmax(1)
    assert (predicted == labels).float().mean() > 0.9


def test_weights_that_are_larger_than_memory_can_be_mapped(tmp_path):
    before = torch.serialization.get_default_mmap_options()
    memory = psutil.virtual_memory().total + psutil.swap_memory().total
    width = memory // 4 // 3 + 2**28  # of three tensors in fp32, together 3 GiB too many
    file = tmp_path / "large.pt"
    fake = torch._subclasses.fake_tensor.FakeTensorMode()
    with fake, torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save({f"weight{i}": torch.empty(width) for i in range(3)}, file)
    assert file.stat().st_size > memory and file.stat().st_blocks < 1000  # no room is used
    state = torch.load(mapping.mappable(file), weights_only=True, mmap=True)
    assert [len(t) for t in state.values()] == [width] * 3
    assert state["weight2"][-4:].tolist() == [0, 0, 0, 0]
    torch.save({"weight": torch.zeros(4)}, tmp_path / "small.pt")
    mapping.mappable(tmp_path / "small.pt")
    assert torch.serialization.get_default_mmap_options() == before
