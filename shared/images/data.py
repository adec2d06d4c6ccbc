"""Images for all stages: the same ones, in the same order, on any number of devices."""

import contextlib
import importlib.metadata
import os
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch.utils.data import Dataset, TensorDataset

from shared.common.errors import UserError, shown
from shared.common.files import OFFLINE, cache_folder, cannot_cache, lock, remove
from shared.common.loading import SPLIT_SEED, loader, set_updates, this_process
from shared.images.folders import Folder
from shared.images.pictures import NORMALIZE, Files, InMemory, Pictures

DIGITS = [str(digit) for digit in range(10)]
DIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"
ARCHIVE = torchvision.datasets.CIFAR10.filename


def loaders(args):
    """Returns the loaders of this process' share of the training, validation and test pictures.

    A batch is images, (args.batch_size // args.shares, 3, args.image_px, args.image_px) in
    fp32, and labels, int64. The k-th batches of all shares together hold the same pictures as
    the k-th batch of a single process. Where pictures are cropped at random, in CIFAR-10 and
    folders, the crop depends on args.seed, the epoch and the picture alone.

    Fills in what depends on the data: args.classes (their names), num_classes, dataset and cropped
    (whether the pictures are), args.updates (updates in the whole training, after --epochs or
    --max-steps) and args.epochs (as many as these updates need).

    Raises:
        UserError: the pictures are missing, unusable, or cannot be downloaded.
    """
    sets, args.classes, args.dataset = image_sets(args)
    args.num_classes = len(args.classes)
    args.cropped = slow = isinstance(sets[0], Pictures)  # and not in memory as the model takes them
    nbytes = 3 * args.image_px**2 * torch.float32.itemsize if slow else None
    found = []
    for part in sets:
        shuffle = part is sets[0]
        crops = slow and shuffle
        found.append(loader(args, part, shuffle, slow_nbytes=nbytes, with_epoch=crops))
    if slow and this_process()[0] == 0:
        n = sum(map(len, sets))
        source = shown(args.data)
        print(f"- reading {n:,} pictures of {args.num_classes} classes from {source}\n", flush=True)
    set_updates(args, len(found[0]))
    return found


def image_sets(args):
    """Returns the pictures of args.data, the names of their classes, and the data set's name.

    The pictures are three data sets, for training, validation and test.

    Raises:
        UserError: the pictures are missing, unusable, or cannot be downloaded.
    """
    if args.data == "digits":
        return digits(args.image_px), DIGITS, "digits"
    if args.data == "fake":
        return [FakePictures(n, args.image_px) for n in (4096, 256, 256)], DIGITS, "fake"
    if args.data == "cifar10":
        folder = cache_folder() / "cifar10"
        return *cifar10(folder, args.image_px, args.seed, download=True), "cifar10"
    folder = Path(args.data)
    # os.path takes any text for a name, even what can be none.
    unpacked = os.path.isdir(folder / torchvision.datasets.CIFAR10.base_folder)
    if unpacked or os.path.isfile(folder / ARCHIVE):
        return *cifar10(folder, args.image_px, args.seed, download=False), "cifar10"
    sets, classes = image_folder(folder, args.image_px, args.seed)
    return sets, classes, shown(folder.resolve().name)


def digits(image_px):
    """Returns scikit-learn's 1,797 handwritten digits as TensorDatasets of 1,300, 137 and 360.

    Source: Alpaydin and Kaynak 1998, https://archive.ics.uci.edu/dataset/80.
    """
    # What sklearn.datasets.load_digits() reads. Importing that would take a second.
    file = importlib.metadata.distribution("scikit-learn").locate_file(DIGITS_FILE)
    raw = torch.from_numpy(np.loadtxt(file, delimiter=","))  # 64 pixels from 0 to 16, and a label
    order = torch.randperm(len(raw), generator=torch.Generator().manual_seed(SPLIT_SEED))
    images = enlarge(raw[order, :-1].view(-1, 8, 8).float() / 16, image_px)
    labels = raw[order, -1].long()
    sizes = [1300, 137, 360]
    return [TensorDataset(*pair) for pair in zip(images.split(sizes), labels.split(sizes))]


def enlarge(images, image_px):
    """Turns grey pictures, (n, 8, 8) in [0, 1], into model input, (n, 3, image_px, image_px)."""
    images = torch.nn.functional.interpolate(images[:, None], size=image_px, mode="bilinear")
    return NORMALIZE(images.expand(-1, 3, -1, -1))


class FakePictures(Dataset):
    """Noise with random labels, for measuring memory and speed without a download."""

    def __init__(self, n, image_px):
        generator = torch.Generator().manual_seed(SPLIT_SEED)
        # A few pictures are enough: __getitem__ repeats them.
        self.images = torch.randn(64, 3, image_px, image_px, generator=generator)
        self.labels = torch.randint(10, (n,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i % len(self.images)], self.labels[i]


def cifar10(folder, image_px, seed, download):
    """Returns CIFAR-10 as three Pictures, 45,000, 5,000 and 10,000, and its classes' names.

    Source: Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html.

    Raises:
        UserError: it is not there or damaged, and cannot be downloaded.
    """
    try:
        if download:
            folder.mkdir(parents=True, exist_ok=True)
        # One process downloads, the others wait.
        with lock(folder / ".lock") if download else contextlib.nullcontext():
            if download:
                _clear(folder)
            train = torchvision.datasets.CIFAR10(folder, train=True, download=download)
        test = torchvision.datasets.CIFAR10(folder, train=False)
    except OFFLINE as error:
        raise UserError(
            f"CIFAR-10 could not be downloaded ({getattr(error, 'reason', error)}); pass --data"
            " digits, --data fake, or --data FOLDER with pictures of your own"
        ) from None
    except (RuntimeError, EOFError):
        again = "delete it to download it again"
        if not download:
            again = f"unpack {ARCHIVE} there, or pass --data cifar10 to download it"
        raise UserError(
            f"CIFAR-10 in {shown(folder)} is incomplete or damaged (its checksum is wrong); {again}"
        ) from None
    except OSError as error:
        if not download:
            raise UserError(f"{shown(folder)} cannot be read ({error.strerror})") from None
        raise cannot_cache(folder, error) from None
    source, labels = InMemory(train.data), train.targets
    train_part, val_part = _split(len(labels), [0.9, 0.1])
    sets = [
        Pictures(source, labels, train_part, image_px, seed),
        Pictures(source, labels, val_part, image_px),
        Pictures(InMemory(test.data), test.targets, list(range(len(test))), image_px),
    ]
    return sets, train.classes


def _clear(folder):
    """Removes what is no file where CIFAR-10 is downloaded to, such as a pipe, which would wait."""
    kind = torchvision.datasets.CIFAR10
    inside = folder / kind.base_folder
    if not inside.is_dir():
        remove(inside)
    names = [name for name, _ in [*kind.train_list, *kind.test_list]]
    for file in (folder / kind.filename, *(inside / name for name in names)):
        if not os.path.isfile(file):
            remove(file)


def image_folder(folder, image_px, seed):
    """Returns the pictures of a folder as three Pictures, and the classes' names.

    Layout: train/<class>/* and test/<class>/*, where a tenth of train is for validation; or
    <class>/*, where a tenth each is for validation and test.

    Raises:
        UserError: there is no such folder, or it is no data set: it has too few pictures, fewer
            than two classes, different classes in train and test, or mostly other files.
    """
    name = f"--data {shown(folder)}"
    if not os.path.isdir(folder):
        what = "that is a file" if os.path.exists(folder) else "there is no such folder"
        raise UserError(
            f"{name}: {what}; pass digits, cifar10, fake, or a folder with train/<class>/* and"
            " test/<class>/*"
        )
    parts = [part for part in ("train", "val", "test") if os.path.isdir(folder / part)]
    split = "train" in parts and "test" in parts
    if parts and not split:
        raise UserError(
            f"{name}: there is {' and '.join(parts)}, but training takes train and test; rename"
            f" one, or pass {shown(folder / parts[0])} to have it split"
        )
    train = Folder(folder / "train" if split else folder)
    if split:
        test = Folder(folder / "test")
        if test.classes != train.classes:
            odd = sorted(set(test.classes) ^ set(train.classes))
            raise UserError(
                f"{name}: train and test must have the same classes, but {shown(odd[0])} is in one"
                " of them only"
            )
        parts = [*_split(len(train.paths), [0.9, 0.1]), list(range(len(test.paths)))]
    else:
        test = train
        parts = _split(len(train.paths), [0.8, 0.1, 0.1])
    if min(map(len, parts)) == 0:
        raise UserError(
            f"{name}: {len(train.paths)} pictures are too few to train, validate and test with; 10"
            " is the least"
        )
    sets = []
    for found, part, crops in zip((train, train, test), parts, (seed, None, None)):
        sets.append(Pictures(Files(found.paths), found.labels, part, image_px, crops))
    return sets, [shown(name) for name in train.classes]


def read(paths, made):
    """Returns pictures as a model gets them in an evaluation: (n, 3, image_px, image_px) in fp32.

    Args:
        paths: list of str.
        made: what the model was made with, from models.load.

    Raises:
        UserError: a file is not a readable picture.
    """
    files = Files(paths)
    if made.cropped:
        found = Pictures(files, [0] * len(paths), list(range(len(paths))), made.image_px)
        return torch.stack([found[i][0] for i in range(len(paths))])
    whole = [files.resized(i, made.image_px) for i in range(len(paths))]
    return NORMALIZE(torch.stack(whole) / 255)


def _split(n, shares):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(SPLIT_SEED)).tolist()
    ends = [0, *(round(n * s) for s in np.cumsum(shares))]
    return [order[a:b] for a, b in zip(ends, ends[1:])]
