"""Images for all stages: the same ones, in the same order, on any number of devices."""

import hashlib
import importlib.metadata
import os
from pathlib import Path
from urllib.error import URLError

import numpy as np
import torch
import torchvision
from filelock import FileLock
from PIL import Image
from torch.utils.data import Dataset, TensorDataset
from torchvision.transforms import v2

from shared import loading
from shared.cli import UserError
from shared.loading import SPLIT_SEED, cache_folder, split

DIGITS = [str(digit) for digit in range(10)]
DIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"
# The statistics of ImageNet, which the pretrained models expect:
# https://docs.pytorch.org/vision/stable/models.html
NORMALIZE = v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
# What Pillow reads by itself. For others, it may call a program: Ghostscript for EPS.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "TIFF", "WEBP", "JPEG2000")


def loaders(args):
    """Returns the loaders of this process' share of the training, validation and test pictures.

    A batch is images, (args.batch_size // args.shares, 3, args.image_px, args.image_px) in fp32,
    and labels, int64. Fills in what image_sets() and loading.loaders() do.

    Raises:
        UserError: the pictures are missing, unusable, or cannot be downloaded.
    """
    sets = image_sets(args)
    return loading.loaders(args, sets, slow=args.cropped)


def image_sets(args):
    """Returns the pictures of args.data: data sets to train, validate and test with.

    Fills in args.dataset (its name), classes (their names), num_classes, and cropped (whether
    pictures are larger before they are cropped to args.image_px).

    Raises:
        UserError: the pictures are missing, unusable, or cannot be downloaded.
    """
    args.dataset = Path(args.data).resolve().name
    if args.data == "digits":
        sets, args.classes = digits(args.image_px), DIGITS
    elif args.data == "fake":
        sets, args.classes = [FakePictures(n, args.image_px) for n in (4096, 256, 256)], DIGITS
    elif args.data == "cifar10":
        sets, args.classes = cifar10(args.image_px, args.seed)
    else:
        sets, args.classes = image_folder(Path(args.data), args.image_px, args.seed)
    args.num_classes, args.cropped = len(args.classes), isinstance(sets[0], Pictures)
    return sets


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


class Pictures(Dataset):
    """A part of some pictures: resized to 8/7 of the model's edge, cropped and normalized.

    The crop is in the centre, or at a place that depends on the seed, the epoch and the picture
    alone. So it does not matter how many processes read them.
    """

    def __init__(self, source, indices, image_px, seed=None):
        """Chooses the pictures, some indices of source, a sequence of (PIL.Image, label).

        image_px is the edge of the crops; seed is for random ones, None for the centre.
        """
        self.source, self.indices, self.image_px, self.seed = source, indices, image_px, seed

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, pick):
        epoch, position = pick if isinstance(pick, tuple) else (0, pick)
        index, px = self.indices[position], self.image_px
        image, label = self.source[index]
        edge = round(px * 8 / 7)  # 256 for 224
        top = left = round((edge - px) / 2)
        if self.seed is not None:
            key = f"{self.seed} {epoch} {index}".encode()
            number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
            top, left = divmod(number % (edge - px + 1) ** 2, edge - px + 1)
        image = image.resize((edge, edge), Image.Resampling.BILINEAR)
        crop = v2.functional.pil_to_tensor(image)[:, top : top + px, left : left + px]
        return NORMALIZE(v2.functional.to_dtype(crop, scale=True)), label


def cifar10(image_px, seed):
    """Returns CIFAR-10 as three Pictures, 45,000, 5,000 and 10,000, and its classes' names.

    Source: Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html.

    Raises:
        UserError: it is not there and cannot be downloaded.
    """
    folder = cache_folder() / "cifar10"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock"):  # one process downloads, the others wait
            train = torchvision.datasets.CIFAR10(folder, train=True, download=True)
        test = torchvision.datasets.CIFAR10(folder, train=False)
    except (URLError, ConnectionError, TimeoutError) as error:
        raise UserError(
            f"CIFAR-10 could not be downloaded ({error}); pass --data digits, --data fake, or"
            " --data FOLDER with pictures of your own"
        ) from None
    return _parts(train, test, image_px, seed), train.classes


def image_folder(folder, image_px, seed):
    """Returns the pictures of a folder as three Pictures, and the classes' names.

    Layout: train/<class>/* and test/<class>/*, where a tenth of train is for validation; or
    <class>/*, where a tenth each is for validation and test.

    Raises:
        UserError: there is no such folder, or it is not laid out like that.
    """
    if not folder.is_dir():
        raise UserError(
            f"--data {folder}: there is no such folder; pass digits, cifar10, fake, or a folder"
            " with <class>/*, or with train/<class>/* and test/<class>/*"
        )
    both = (folder / "train").is_dir() and (folder / "test").is_dir()
    try:
        train = torchvision.datasets.ImageFolder(folder / "train" if both else folder, loader=load)
        test = torchvision.datasets.ImageFolder(folder / "test", loader=load) if both else None
    except FileNotFoundError as error:  # no classes, or one without a picture
        raise UserError(f"--data {folder}: {str(error).splitlines()[0]}") from None
    if test and test.classes != train.classes:
        raise UserError(f"--data {folder}: train and test must have the same classes")
    return _parts(train, test, image_px, seed), train.classes


def load(path):
    """Returns the picture in a file, a PIL.Image in RGB.

    Raises:
        UserError: there is none, or none that can be read.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise UserError(f"{path} is not a readable picture; mend or remove it") from None


def read(paths, made):
    """Returns pictures as a model gets them in an evaluation: (n, 3, image_px, image_px) in fp32.

    Args:
        paths: list of str.
        made: what the model was made with, from models.load.

    Raises:
        UserError: a file is not a readable picture.
    """
    images = [load(path) for path in paths]
    if made.cropped:
        found = Pictures([(image, 0) for image in images], range(len(images)), made.image_px)
        return torch.stack([picture for picture, _ in found])
    size = (made.image_px, made.image_px)
    images = [image.resize(size, Image.Resampling.BILINEAR) for image in images]
    return NORMALIZE(torch.stack([v2.functional.pil_to_tensor(image) for image in images]) / 255)


def is_folder(what):
    """Tells whether --data names a folder in which classes are folders, and not of texts."""
    return os.path.isdir(what) and not any(Path(what).glob("*.*"))


def _parts(train, test, image_px, seed):
    if test is None:
        test, (a, b, c) = train, split(len(train), [0.8, 0.1, 0.1])
    else:
        (a, b), c = split(len(train), [0.9, 0.1]), range(len(test))
    whole = ((train, a, seed), (train, b, None), (test, c, None))
    return [Pictures(source, indices, image_px, crops) for source, indices, crops in whole]
