"""Images for all stages: the same images in the same order, on any number of devices."""

import hashlib
import importlib.metadata
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset
from torchvision.transforms import v2

from shared.run import loading
from shared.run.errors import UserError
from shared.run.loading import SPLIT_SEED, split

DIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"
# The statistics of ImageNet, which the pretrained models expect:
# https://docs.pytorch.org/vision/stable/models.html
NORMALIZE = v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
# Formats that Pillow decodes itself. For others, it may run a program, such as Ghostscript for EPS.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "TIFF", "WEBP", "JPEG2000")


def loaders(args):
    """Return the Loaders of this process for the training, validation and test images.

    A batch is images, (args.batch_size // args.shares, 3, args.image_px, args.image_px) in fp32,
    and labels, int64.

    Raises:
        UserError: the images are missing, unusable, or cannot be downloaded.
    """
    sets, classes = image_sets(args)
    dataset = Path(args.data).resolve().name
    cropped = isinstance(sets[0], Pictures)  # read from files, by worker processes
    return loading.loaders(args, sets, dataset, classes, slow=cropped, cropped=cropped)


def image_sets(args):
    """Return the training, validation and test sets of args.data, and the names of its classes."""
    px = args.image_px
    classes = [str(digit) for digit in range(10)]
    if args.data == "digits":
        sets = digits(px)
    elif args.data == "fake":
        generator = torch.Generator().manual_seed(SPLIT_SEED)
        noise = torch.randn(64, 3, px, px, generator=generator)  # a few images, repeated
        some = TensorDataset(noise, torch.randint(10, (64,), generator=generator))
        sizes = loading.fake_sizes(args)
        sets = [Subset(some, [i % 64 for i in range(n)]) for n in sizes]
    else:
        train, test = cifar10() if args.data == "cifar10" else image_folder(Path(args.data))
        cut = split(len(train), [0.9, 0.1] if test else [0.8, 0.1, 0.1])
        sets = [Pictures(train, cut[0], px, args.seed)]
        sets += [Pictures(train, indices, px) for indices in cut[1:]]
        sets += [Pictures(test, range(len(test)), px)] if test else []
        classes = train.classes
    return sets, classes


def digits(image_px):
    """Return scikit-learn's 1,797 handwritten digits, as TensorDatasets of 1,300, 137 and 360.

    Source: Alpaydin and Kaynak 1998, https://archive.ics.uci.edu/dataset/80.
    """
    # The file that sklearn.datasets.load_digits() reads; importing sklearn would take a second.
    file = importlib.metadata.distribution("scikit-learn").locate_file(DIGITS_FILE)
    raw = torch.from_numpy(np.loadtxt(file, delimiter=","))  # 64 pixels from 0 to 16, and a label
    order = torch.randperm(len(raw), generator=torch.Generator().manual_seed(SPLIT_SEED))
    images = enlarge(raw[order, :-1].view(-1, 8, 8).float() / 16, image_px)
    labels = raw[order, -1].long()
    sizes = [1300, 137, 360]
    return [TensorDataset(*pair) for pair in zip(images.split(sizes), labels.split(sizes))]


def enlarge(images, image_px):
    """Resize gray images, (n, 8, 8) in [0, 1], to model input, (n, 3, image_px, image_px)."""
    images = torch.nn.functional.interpolate(images[:, None], size=image_px, mode="bilinear")
    return NORMALIZE(images.expand(-1, 3, -1, -1))


class Pictures(Dataset):
    """A subset of a sequence of (PIL.Image, label), resized, cropped and normalized.

    The crop is 7/8 of the edge: at the center, or with a seed at a place that depends on the seed,
    the epoch and the image alone. So it does not depend on the number of processes.
    """

    def __init__(self, source, indices, image_px, seed=None):
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


def cifar10():
    """Return CIFAR-10: 50,000 training images and 10,000 test images.

    Source: Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    read = torchvision.datasets.CIFAR10
    try:
        folder = loading.made_once("cifar10", lambda part: read(part, download=True))
    except loading.NO_NETWORK as error:
        instead = "pass --data digits, --data fake, or --data FOLDER with images of your own"
        raise UserError(f"CIFAR-10 could not be downloaded ({error}); {instead}") from None
    return read(folder), read(folder, train=False)


def image_folder(folder):
    """Return the images of train/<class>/* and test/<class>/*, or those of <class>/* and None."""
    if not folder.is_dir():
        instead = "pass digits, cifar10, fake, or a folder with a folder for each class"
        raise UserError(f"--data {folder}: there is no such folder; {instead}")
    both = all((folder / part).is_dir() for part in ("train", "test"))
    roots = [folder / "train", folder / "test"] if both else [folder]
    try:
        train, *test = (torchvision.datasets.ImageFolder(root, loader=load) for root in roots)
    except FileNotFoundError as error:  # no classes, or one without images
        raise UserError(f"--data {folder}: {str(error).splitlines()[0]}") from None
    loading.check_classes(folder, len(train), *(part.classes for part in (train, *test)))
    return train, test[0] if test else None


def load(path):
    """Read an image file as a PIL.Image in RGB."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise UserError(f"{path} is not a readable picture; repair or remove it") from None
