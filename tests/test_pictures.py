"""Promise: pictures are prepared as by torchvision, and crops depend on no number of processes."""

import io
import os
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import paint
from lightning.fabric import Fabric
from PIL import EpsImagePlugin, Image
from torch.utils.data import DistributedSampler
from torchvision.transforms import v2

from shared.common import loading
from shared.common.errors import UserError, shown
from shared.images import data, folders, speed
from shared.images.pictures import NORMALIZE, Files, InMemory, Pictures

NOISE = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)


def options(source, **more):
    given = {"image_px": 32, "batch_size": 8, "epochs": 2, "max_steps": None, "accelerator": "cpu"}
    where = {"data": str(source), "devices": 1, "shares": 1, "seed": 1}
    return types.SimpleNamespace(**{**given, **where, **more})


@pytest.fixture
def folder(tmp_path):
    """24 different pictures of two classes."""
    for i, pixels in enumerate(NOISE):
        kind = tmp_path / "noise" / "ab"[i % 2]
        kind.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((32 + 16 * (i % 3), 64)).save(kind / f"{i:02}.png")
    return tmp_path / "noise"


@pytest.mark.parametrize("px", [32, 56, 224, 384])
def test_a_picture_is_what_torchvision_makes_of_it(px, folder):
    edge = round(px * 8 / 7)
    convert = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), NORMALIZE]
    transform = v2.Compose([v2.Resize((edge, edge)), v2.CenterCrop(px), *convert])
    paths = sorted(folder.glob("*/*.png"))[:3]
    for source, images in (
        (InMemory(NOISE), [Image.fromarray(pixels) for pixels in NOISE[:3]]),
        (Files(paths), [Image.open(path).convert("RGB") for path in paths]),
    ):
        pictures = Pictures(source, [7] * 24, range(24), px)
        expected = torch.stack([transform(image) for image in images])
        prepared, labels = torch.utils.data.default_collate(pictures.__getitems__([0, 1, 2]))
        assert torch.equal(prepared, expected) and labels.tolist() == [7, 7, 7]
        assert torch.equal(pictures[1][0], expected[1]) and pictures[1][1] == 7


def test_a_random_crop_is_a_part_of_the_picture():
    source = InMemory(NOISE)
    places = {Pictures(source, [0] * 24, range(24), 32, 5)._corner(e, 3, 5) for e in range(400)}
    assert len(places) == 36  # all there are, 0 to 5 from the top and from the left
    edge = 256
    whole = Pictures(source, [0] * 24, range(24), edge - 32, 5)
    top, left = whole._corner(2, 9, 32)
    part = source.resized(9, edge)[:, top : top + 224, left : left + 224]
    assert torch.allclose(whole[2, 9][0], NORMALIZE(part / 255), atol=1e-5)


def epochs(args, n=2):
    train = data.loaders(args)[0]
    found = []
    for epoch in range(n):
        train.sampler.set_epoch(epoch)
        found.append([images for images, _ in train])
    return found


def test_crops_depend_on_seed_epoch_and_picture_alone(folder, monkeypatch):
    one = epochs(options(folder))
    assert not torch.equal(one[0][0], epochs(options(folder, seed=2), 1)[0][0])
    # There are 36 places for a crop, so few pictures are cropped in the same one in both epochs.
    first, second = (torch.cat(batches).flatten(1) for batches in one)
    assert (first[:, None] == second).all(2).sum() < 5
    # Two processes, each with two workers that live through both epochs.
    monkeypatch.setattr(loading, "worker_processes", lambda *_: 2)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    shares = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        shares.append(epochs(options(folder, shares=2)))
    for epoch in range(2):
        for k, images in enumerate(one[epoch][:-1]):
            together = torch.stack([share[epoch][k] for share in shares], 1).flatten(0, 1)
            assert torch.equal(images, together)


class Read(list):
    """Examples that tell which of them were read."""

    def __getitem__(self, i):
        self.seen.append(i)
        return super().__getitem__(i)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_pass_can_begin_in_the_middle(wrapped):
    examples = Read(range(20))
    examples.seen = []
    loader = loading.loader(options("", batch_size=3), examples, shuffle=True)
    inner = loader
    if wrapped:
        fabric = Fabric(accelerator="cpu", devices=1)
        loader = fabric.setup_dataloaders(loader, use_distributed_sampler=False)
    assert loader.sampler is inner.sampler and isinstance(loader.sampler, loading.Order)
    loader.sampler.set_epoch(3)
    order = list(loader.sampler)
    loader.sampler.start = 4
    rest = [batch.tolist() for batch in loader]
    assert rest == [order[12:15], order[15:18], order[18:]] and examples.seen == order[12:]
    assert len(loader) == 7 and loader.sampler.start == 0
    loader.sampler.set_epoch(0)  # as Fabric, which counts its own passes
    assert loader.sampler.epoch == 3 and [batch.tolist() for batch in loader][4:] == rest


def test_the_order_is_that_of_a_distributed_sampler(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    for rank, shuffle in ((0, True), (3, True), (2, False)):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        order = loading.Order(range(21), 2, shuffle, seed=5)
        usual = DistributedSampler(range(21), 4, rank, shuffle, seed=5)
        for epoch in range(2):
            order.set_epoch(epoch)
            usual.set_epoch(epoch)
            assert list(order) == list(usual)


def test_as_many_workers_as_cores_devices_and_memory_suggest(monkeypatch, folder):
    def workers(cores, devices, free=1e12):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        monkeypatch.setattr(loading, "SHARED_MEMORY", str(folder))
        usage = types.SimpleNamespace(free=int(free))
        monkeypatch.setattr(loading.shutil, "disk_usage", lambda _: usage)
        return loading.worker_processes(devices, batch_nbytes=1000)

    assert [workers(12, n) for n in (1, 4, 16)] == [12, 3, 1]
    assert workers(256, 2) == loading.MOST_WORKERS
    assert [workers(8, 1, free) for free in (1e3, 6e3, 1e12)] == [0, 2, 8]
    few = [loader.num_workers for loader in data.loaders(options("digits"))]
    assert few == [0, 0, 0] and data.loaders(options(folder))[0].persistent_workers


def test_the_benchmark_prepares_the_same_pictures_in_two_ways(folder, capsys):
    assert min(speed.main(["--data", str(folder), "--images", "9", "--image-px", "32"])) > 0
    assert min(speed.main(["--images", "5", "--image-px", "32", "--batch-size", "2"])) > 0
    printed = capsys.readouterr().out
    assert printed.count("images/s") == 4 and "5 pictures to 32 px" in printed
    with pytest.raises(UserError, match="need no preparation"):
        speed.main(["--data", "fake"])


FORMS = {
    "16 bits.png": lambda file: Image.fromarray(np.full((9, 9), 0x80FF, np.uint16)).save(file),
    "palette.png": lambda file: Image.new("P", (9, 9)).save(file),
    "cmyk.jpg": lambda file: Image.new("CMYK", (9, 9), (128, 128, 128, 0)).save(file),
    "rgba.png": lambda file: Image.new("RGBA", (9, 9)).save(file),
    "one bit.png": lambda file: Image.new("1", (9, 9)).save(file),
    "long.png": lambda file: Image.new("RGB", (1, 900)).save(file),
    "animated.gif": lambda file: Image.new("P", (9, 9)).save(
        file, save_all=True, append_images=[Image.new("P", (9, 9), 1)]
    ),
}


def test_pictures_in_many_forms(folder):
    for name, save in FORMS.items():
        save(folder / "a" / name)
    os.rename(folder / "a" / "16 bits.png", os.fsencode(folder / "a") + b"/\xff.png")
    sets, classes, _ = data.image_sets(options(folder))
    pictures = {Path(p).name: i for i, p in enumerate(sets[0].source.paths)}
    assert len(classes) == 2 and len(pictures) == 24 + len(FORMS)
    for i in pictures.values():
        assert sets[0].source.resized(i, 20).shape == (3, 20, 20)
    grey = sets[0].source.resized(pictures["\udcff.png"], 20)
    assert grey.unique().tolist() == [0x80]  # 16 bits are scaled, not cut off


def truncated(file):
    whole = io.BytesIO()
    Image.fromarray(NOISE[0]).resize((99, 99)).save(whole, "jpeg")
    file.write_bytes(whole.getvalue()[:600])


def bomb(file):
    Image.new("1", (1, 1)).save(file)
    content = bytearray(file.read_bytes())
    content[16:24] = 2 * (60_000).to_bytes(4, "big")
    file.write_bytes(content)


UNREADABLE = {
    "truncated.jpg": truncated,
    "bomb.png": bomb,
    "empty.png": lambda file: file.touch(),
    "garbage.jpg": lambda file: file.write_bytes(bytes(range(256))),
    "program.png": lambda file: file.write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9"
    ),
    "a folder.png": lambda file: file.mkdir(),
    "two\nlines.png": lambda file: file.touch(),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_picture_is_named_in_one_line(name, tmp_path):
    file = tmp_path / name
    UNREADABLE[name](file)
    with pytest.raises(UserError, match="is not a readable picture") as error:
        Files([str(file)]).resized(0, 32)
    assert "\n" not in str(error.value) and shown(file) in str(error.value)


def test_no_picture_starts_a_program(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args, **_: started.append(args))
    file = tmp_path / "program.png"
    file.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with pytest.raises(UserError, match="is not a readable picture"):
        Files([str(file)]).resized(0, 32)
    assert not started


def many(folder, n, kind):
    for i in range(n):
        kind(folder / f"{i}.txt")


def link(place, target):
    place.symlink_to(target)


def cifar(folder):
    (folder / "cifar-10-batches-py").mkdir()
    os.mkfifo(folder / "cifar-10-batches-py" / "data_batch_1")


HOSTILE = {
    "a pipe": (lambda f: os.mkfifo(f / "a" / "p.png"), "p.png is not a readable picture"),
    "a device": (lambda f: link(f / "a" / "z.png", "/dev/zero"), "z.png is not a readable picture"),
    "a dangling link": (lambda f: link(f / "a" / "d.jpg", "gone"), "d.jpg is not a readable"),
    "a link to itself": (lambda f: link(f / "a" / "d.jpg", "d.jpg"), "d.jpg is not a readable"),
    "a link to above": (lambda f: link(f / "b" / "up", ".."), "b/up is a link back to a folder"),
    "a link to the root": (lambda f: link(f / "b" / "up", "/"), "b/up is a link back to a folder"),
    "a class that is all": (lambda f: link(f / "c", "."), "/c is a link back to a folder"),
    "too deep": (lambda f: (f / "a" / Path(*30 * "x")).mkdir(parents=True), "20 folders are the"),
    "classes": (lambda f: many(f, 101, Path.mkdir), "103 folders, but each is a class"),
    "files": (lambda f: many(f / "a", 999, Path.touch), "no folder of pictures.*first 601 files"),
    "CIFAR-10": (cifar, "is incomplete or damaged .* unpack cifar-10-python.tar.gz there"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_data_set_is_refused_at_once(name, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MOST_CLASSES", 100)
    monkeypatch.setattr(folders, "ENOUGH", 600)
    for kind in "ab":
        paint(tmp_path / "data" / kind, 6, 0)
    spoil, message = HOSTILE[name]
    spoil(tmp_path / "data")
    with pytest.raises(UserError, match=message) as error:
        data.image_sets(options(tmp_path / "data"))
    assert "\n" not in str(error.value)


NO_NAMES = ["x" * 5000, "x/" * 3000, "a\0b", "two\nlines", "\udcff", "/", "/proc", "/dev", __file__]


@pytest.mark.parametrize("what", NO_NAMES, ids=range(len(NO_NAMES)))
def test_what_names_no_data_set_is_refused_at_once(what):
    with pytest.raises(UserError) as error:
        data.image_sets(options(what))
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
    assert str(error.value).isprintable()


def test_folders_that_are_linked_again_and_again_are_read_once(tmp_path):
    for kind in "ab":
        paint(tmp_path / "data" / kind, 6, 0)
    inner = tmp_path / "data" / "b"
    for i in range(15):  # 2**15 ways lead to the same six pictures
        folder = tmp_path / f"level{i}"
        folder.mkdir()
        for name in "xy":
            link(folder / name, inner)
        inner = folder
    link(tmp_path / "data" / "c", inner)
    sets, classes, _ = data.image_sets(options(tmp_path / "data"))
    assert len(classes) == 3 and len(sets[0].source.paths) == 18
