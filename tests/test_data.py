"""Promise: every stage sees the same pictures in the same order, and a user's own pictures work."""

import hashlib
import os
import pickle
import shutil
import tarfile
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from conftest import paint, read_json, run

from shared.common import files, loading, scripts
from shared.common.errors import UserError
from shared.images import data

TINY = ["--preset", "tiny"]


def options(source, **more):
    sizes = {"image_px": 32, "batch_size": 16, "epochs": 1, "max_steps": None}
    where = {"data": str(source), "accelerator": "cpu", "devices": 1, "shares": 1, "seed": 1}
    return types.SimpleNamespace(**{**sizes, **where, **more})


def test_digits_are_split_without_overlap():
    train, val, test = data.digits(32)
    assert (len(train), len(val), len(test)) == (1300, 137, 360)
    flat = torch.cat([part.tensors[0] for part in (train, val, test)]).flatten(1)
    assert len(flat.unique(dim=0)) == 1797
    assert flat.shape[1] == 3 * 32 * 32
    assert abs(flat.mean()) < 1.5  # normalized


def test_fake_pictures_teach_nothing():
    fake = data.FakePictures(6400, 8)
    images, labels = zip(*(fake[i] for i in range(len(fake))))
    assert images[0].shape == (3, 8, 8) and torch.equal(images[1], images[65])
    shown = torch.zeros(64, 10)
    pairs = torch.arange(6400) % 64, torch.stack(labels)
    shown.index_put_(pairs, torch.ones(6400), accumulate=True)
    assert shown.max() < 40  # of 100 times that a picture is shown


def test_loaders_fill_in_what_only_the_data_can_tell():
    args = options("digits", epochs=3)
    train, val, test = data.loaders(args)
    assert (args.num_classes, args.dataset, args.updates, args.epochs) == (10, "digits", 3 * 82, 3)
    images, labels = next(iter(train))
    assert images.shape == (16, 3, 32, 32)
    assert images.dtype == torch.float32 and labels.dtype == torch.int64
    args = options("digits", epochs=10, max_steps=83)
    data.loaders(args)
    assert (args.updates, args.epochs) == (83, 2)


def test_four_processes_see_the_batches_of_one(monkeypatch):
    one = [batch for batch in data.loaders(options("digits"))[0]]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    shares = []
    for rank in range(4):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        shares.append(list(data.loaders(options("digits", shares=4))[0]))
    assert len(one) == len(shares[0]) == 82
    for k, (images, _) in enumerate(one):
        together = torch.cat([share[k][0] for share in shares])
        assert len(images) == len(together)
        one_share, all_shares = (x.flatten(1).sort(dim=0).values for x in (images, together))
        assert torch.equal(one_share, all_shares)
    whole = data.loaders(options("digits", shares=1))[0]  # of the last process: the same as of one
    assert all(torch.equal(x[0], y[0]) for x, y in zip(one, whole, strict=True))
    assert (loading.this_share(), loading.this_share(2)) == ((3, 4), (1, 2))


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        torch.rand(7)
        loader = data.loaders(options("digits", seed=seed))[0]
        loader.sampler.set_epoch(epoch)
        return list(loader.sampler)

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(2, 0)
    assert order(1, 0) != order(1, 1)


@pytest.fixture
def cifar10(web, monkeypatch):
    """A small CIFAR-10 in the original format, 40 + 10 pictures, as a download.

    Its checksums are the ones that are expected.
    """
    source = web[0] / "cifar-10-batches-py"
    source.mkdir()
    rng = np.random.default_rng(0)

    def write(name, content):
        (source / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((source / name).read_bytes()).hexdigest()]

    def batch(n):
        pixels = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
        return {"data": pixels, "labels": [i % 10 for i in range(n)]}

    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    kind = torchvision.datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [write(f"data_batch_{i}", batch(20)) for i in (1, 2)])
    monkeypatch.setattr(kind, "test_list", [write("test_batch", batch(10))])
    meta = write("batches.meta", {"label_names": names})
    monkeypatch.setattr(kind, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    archive = web[0] / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, "cifar-10-batches-py")
    monkeypatch.setattr(kind, "url", f"{web[1]}/{archive.name}")
    monkeypatch.setattr(kind, "tgz_md5", hashlib.md5(archive.read_bytes()).hexdigest())
    return archive


def test_cifar10_is_downloaded_and_read(cifar10, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    (train, val, test), classes, name = data.image_sets(options("cifar10"))
    assert (len(train), len(val), len(test), len(classes), name) == (36, 4, 10, 10, "cifar10")
    assert not set(train.indices) & set(val.indices)
    image, label = test[3]
    assert image.shape == (3, 32, 32) and label == 3


def test_cifar10_in_a_folder(cifar10):
    (train, _, _), _, name = data.image_sets(options(cifar10.parent))
    assert len(train) == 36 and name == "cifar10"


def test_damaged_cifar10(cifar10, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    cifar10.write_bytes(cifar10.read_bytes()[:-10])
    with pytest.raises(UserError, match="damaged"):
        data.image_sets(options("cifar10"))


SPOIL_CIFAR10 = {
    "a batch is torn": lambda f: (f / "cifar-10-batches-py/data_batch_1").write_bytes(b"torn"),
    "a batch is a pipe": lambda f: swap(f / "cifar-10-batches-py/data_batch_2", os.mkfifo),
    "a batch is a folder": lambda f: swap(f / "cifar-10-batches-py/test_batch", os.mkdir),
    "all are a file": lambda f: swap(f / "cifar-10-batches-py", Path.touch),
    "all is torn": lambda f: [(f / name).write_bytes(b"torn") for name in ALL_OF_CIFAR10],
    "all is a pipe": lambda f: [swap(f / name, os.mkfifo) for name in ALL_OF_CIFAR10],
    "lock": lambda f: swap(f / ".lock", os.mkdir),
}
ALL_OF_CIFAR10 = ("cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1")


def swap(path, make):
    files.remove(path)
    make(path)


def test_cifar10_in_the_cache_is_made_again(cifar10, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    (train, *_), _, _ = data.image_sets(options("cifar10"))
    for spoil in SPOIL_CIFAR10.values():
        spoil(tmp_path / "home" / "memory-ladder" / "cifar10")
        assert len(data.image_sets(options("cifar10"))[0][0]) == len(train)


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    nowhere = "http://127.0.0.1:9/cifar-10-python.tar.gz"
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "url", nowhere)
    with pytest.raises(UserError, match="--data digits, --data fake, or --data FOLDER"):
        data.image_sets(options("cifar10"))


@pytest.fixture
def folder(tmp_path):
    for part, n in (("train", 20), ("test", 5)):
        for name, color in (("red", (200, 0, 0)), ("green", (0, 200, 0)), ("blue", (0, 0, 200))):
            paint(tmp_path / part / name, n, color)
    return tmp_path


def test_image_folder_with_train_and_test(folder):
    args = options(folder)
    sets, classes, name = data.image_sets(args)
    assert [len(s) for s in sets] == [54, 6, 15] and len(classes) == 3
    assert not set(sets[0].indices) & set(sets[1].indices)


def test_image_folder_of_one_level_is_split(folder):
    sets, classes, _ = data.image_sets(options(folder / "train"))
    assert [len(s) for s in sets] == [48, 6, 6] and classes == ["blue", "green", "red"]
    assert len({i for s in sets for i in s.indices}) == 60


def trained(name, *options):
    """Returns the record of a script."""
    return scripts.get(name).load().main([*TINY, *map(str, options)])


def test_a_stage_learns_a_folder(folder, capsys):
    record = trained("04_batchsize/train", "--data", folder, "--epochs", 4)
    said = f"- reading 75 pictures of 3 classes from {folder}"
    assert capsys.readouterr().out.splitlines().count(said) == 1
    assert record["dataset"] == folder.name and record["test_accuracy"] > 0.9


SPOILED = [
    (lambda f: f / "nowhere", "there is no such folder"),
    (lambda f: (f / "new").mkdir() or f / "new", "every class needs a folder"),
    (lambda f: (f / "train" / "void").mkdir() or f, "every class needs a folder"),
    (lambda f: paint(f / "solo" / "red", 20, 0) or f / "solo", "red is the only class"),
    (lambda f: paint(f / "test" / "pink", 1, 0) or f, "pink is in one of them only"),
    (
        lambda f: (f / "test").rename(f / "val") and f,
        "there is train and val, but training takes train and test",
    ),
    (lambda f: [paint(f / "few" / c, 2, 0) for c in "ab"] and f / "few", "too few"),
]


@pytest.mark.parametrize("spoil, message", SPOILED)
def test_unusable_folders(folder, spoil, message):
    with pytest.raises(UserError, match=message):
        data.image_sets(options(spoil(folder)))


def test_stages_see_the_same_crops(folder):
    names = "06_sgd/train", "07_init_module/train"
    one, two = (trained(name, "--data", folder, "--max-steps", 3) for name in names)
    assert one["last_loss"] == two["last_loss"] and one["first_loss"] != one["last_loss"]


def test_pictures_that_four_processes_cannot_share_evenly(tmp_path):
    for name in ("red", "blue"):
        paint(tmp_path / "train" / name, 20, name)
        # The last batches of two processes are repetition alone.
        paint(tmp_path / "test" / name, 9, name)
    shutil.copy(tmp_path / "test" / "blue" / "8.png", tmp_path / "test" / "red" / "8.png")
    record = tmp_path / "record.jsonl"
    options = *TINY, "--data", tmp_path, "--record", record
    run("tests/forks.py", 4, "08_fsdp/train.py", *options)
    assert read_json(record)["test_accuracy"] == pytest.approx(17 / 18)  # each counts once


def test_a_corrupt_picture_is_named(folder):
    bad = folder / "train" / "red" / "7.png"
    bad.write_bytes(bad.read_bytes()[:60])
    with pytest.raises(UserError, match="red/7.png is not a readable picture"):
        trained("04_batchsize/train", "--data", folder)
