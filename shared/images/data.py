"""Images for all stages: the same ones, in the same order, on any number of devices."""

import contextlib
import os
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset
from torchvision.transforms import v2

from shared.common.errors import UserError
from shared.common.files import OFFLINE, cache_folder, cannot_cache, lock, remove
from shared.common.loading import SPLIT_SEED, loader, set_updates

# The statistics of ImageNet, which the pretrained models expect:
# https://docs.pytorch.org/vision/stable/models.html
NORMALIZE = v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])


def loaders(args):
    """Returns the loaders of this process' share of the training, validation and test pictures.

    A batch is images, (args.batch_size // args.world_size, 3, args.image_px, args.image_px) in
    fp32, and labels, int64. The k-th batches of all processes together hold the same pictures as
    the k-th batch of a single process. (Where pictures are cropped at random, in CIFAR-10 and
    folders, the crops depend on the number of processes.)

    Fills in what depends on the data: args.num_classes, args.dataset, args.updates (updates in the
    whole training, after --epochs or --max-steps) and args.epochs (as many as these updates need).

    Raises:
        UserError: the pictures are missing, unusable, or cannot be downloaded.
    """
    sets, args.num_classes, args.dataset = image_sets(args)
    files = isinstance(sets[0], Subset)
    found = [loader(args, part, shuffle=part is sets[0], from_files=files) for part in sets]
    set_updates(args, len(found[0]))
    return found


def image_sets(args):
    """Returns the pictures of args.data, the number of their classes, and the data set's name.

    The pictures are three data sets, for training, validation and test.

    Raises:
        UserError: the pictures are missing, unusable, or cannot be downloaded.
    """
    if args.data == "digits":
        return digits(args.image_px), 10, "digits"
    if args.data == "fake":
        return [FakePictures(n, args.image_px) for n in (4096, 256, 256)], 10, "fake"
    if args.data == "cifar10":
        sets = cifar10(cache_folder() / "cifar10", args.image_px, download=True)
        return sets, 10, "cifar10"
    folder = Path(args.data)
    if (folder / "cifar-10-batches-py").is_dir() or (folder / "cifar-10-python.tar.gz").is_file():
        return cifar10(folder, args.image_px, download=False), 10, "cifar10"
    sets, classes = image_folder(folder, args.image_px)
    return sets, classes, folder.resolve().name


def digits(image_px):
    """Returns scikit-learn's 1,797 handwritten digits as TensorDatasets of 1,300, 137 and 360.

    Source: Alpaydin and Kaynak 1998, https://archive.ics.uci.edu/dataset/80.
    """
    from sklearn.datasets import load_digits  # takes a second, which other data need not spend

    raw = load_digits()
    order = torch.randperm(len(raw.images), generator=torch.Generator().manual_seed(SPLIT_SEED))
    images = enlarge(torch.from_numpy(raw.images).float()[order] / 16, image_px)
    labels = torch.from_numpy(raw.target).long()[order]
    sizes = [1300, 137, 360]
    return [TensorDataset(*pair) for pair in zip(images.split(sizes), labels.split(sizes))]


def enlarge(images, image_px):
    """Turns grey pictures, (n, 8, 8) in [0, 1], into model input, (n, 3, image_px, image_px)."""
    images = images[:, None].expand(-1, 3, -1, -1)
    return NORMALIZE(torch.nn.functional.interpolate(images, size=image_px, mode="bilinear"))


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


def cifar10(folder, image_px, download):
    """Returns CIFAR-10 as three datasets: 45,000, 5,000 and 10,000 pictures.

    Source: Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html.

    Raises:
        UserError: it is not there or damaged, and cannot be downloaded.
    """
    train_transform, test_transform = _transforms(image_px)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # One process downloads, the others wait.
        with lock(folder / ".lock") if download else contextlib.nullcontext():
            if download:
                _clear(folder)
            train = torchvision.datasets.CIFAR10(
                folder, train=True, transform=train_transform, download=download
            )
        val = torchvision.datasets.CIFAR10(folder, train=True, transform=test_transform)
        test = torchvision.datasets.CIFAR10(folder, train=False, transform=test_transform)
    except OFFLINE as error:
        raise UserError(
            f"CIFAR-10 could not be downloaded ({getattr(error, 'reason', error)}); pass --data"
            " digits, --data fake, or --data FOLDER with pictures of your own"
        ) from None
    except (RuntimeError, EOFError):
        raise UserError(
            f"CIFAR-10 in {folder} is incomplete or damaged (its checksum is wrong); delete it to"
            " download it again"
        ) from None
    except OSError as error:
        raise cannot_cache(folder, error) from None
    train_part, val_part = _split(len(train), [0.9, 0.1])
    return [Subset(train, train_part), Subset(val, val_part), test]


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


def image_folder(folder, image_px):
    """Returns the pictures of a folder as three datasets, and the number of classes.

    Layout: train/<class>/* and test/<class>/*, where a tenth of train is for validation; or
    <class>/*, where a tenth each is for validation and test.

    Raises:
        UserError: there is no such folder, or it has no pictures, fewer than two classes, or
            different classes in train and test.
    """
    if not folder.is_dir():
        raise UserError(
            f"--data {folder}: there is no such folder; pass digits, cifar10, fake, or a folder"
            " with train/<class>/* and test/<class>/*"
        )
    train_transform, test_transform = _transforms(image_px)
    parts = [name for name in ("train", "val", "test") if (folder / name).is_dir()]
    split = "train" in parts and "test" in parts
    if parts and not split:
        raise UserError(
            f"--data {folder}: there is {' and '.join(parts)}, but training takes train and test;"
            f" rename one, or pass {folder / parts[0]} to have it split"
        )
    root = folder / "train" if split else folder
    train, val = _pictures(root, train_transform), _pictures(root, test_transform)
    if split:
        test = _pictures(folder / "test", test_transform)
        if test.classes != train.classes:
            odd = sorted(set(test.classes) ^ set(train.classes))
            raise UserError(
                f"--data {folder}: train and test must have the same classes, but {odd[0]} is in"
                " one of them only"
            )
        parts = [*_split(len(train), [0.9, 0.1]), range(len(test))]
    else:
        test = val
        parts = _split(len(train), [0.8, 0.1, 0.1])
    if min(map(len, parts)) == 0:
        raise UserError(
            f"--data {folder}: {len(train)} pictures are too few to train, validate and test with;"
            " 10 is the least"
        )
    return [Subset(*pair) for pair in zip((train, val, test), parts)], len(train.classes)


def _pictures(folder, transform):
    try:
        pictures = torchvision.datasets.ImageFolder(folder, transform=transform, loader=_open)
    except FileNotFoundError:  # no class at all, or one without a picture
        raise UserError(
            f"--data {folder}: every class needs a folder of its own with pictures in it,"
            " <class>/*.jpg or *.png"
        ) from None
    if len(pictures.classes) < 2:
        raise UserError(
            f"--data {folder}: {pictures.classes[0]} is the only class; there must be two or more,"
            " each in a folder of its own"
        )
    return pictures


def _open(file):
    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        # Pillow raises any of these, depending on the format.
        raise UserError(f"{file} is not a readable picture; mend or remove it") from None


def _transforms(image_px):
    larger = round(image_px * 8 / 7)  # 256 for 224
    convert = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), NORMALIZE]
    return (
        v2.Compose([v2.Resize((larger, larger)), v2.RandomCrop(image_px), *convert]),
        v2.Compose([v2.Resize((larger, larger)), v2.CenterCrop(image_px), *convert]),
    )


def _split(n, shares):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(SPLIT_SEED)).tolist()
    ends = [0, *(round(n * s) for s in np.cumsum(shares))]
    return [order[a:b] for a, b in zip(ends, ends[1:])]
