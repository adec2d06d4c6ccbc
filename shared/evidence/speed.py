"""How many pictures per second a core prepares: here, and with the transforms of the 2023 scripts.

Without --data, the pictures are noise in the form of CIFAR-10, and nothing is downloaded.
"""

import time
import types

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from shared.cli import Parser, UserError, positive, run
from shared.common.loading import Order
from shared.common.options import name
from shared.images import data
from shared.images.pictures import NORMALIZE, InMemory, Pictures
from shared.records.machine import device_name

ROUNDS = 4  # the quickest counts: other programs can only slow one down


class As2023(Dataset):
    """The pictures of a Pictures, one by one, as the 2023 scripts prepare them for training."""

    def __init__(self, pictures):
        self.pictures = pictures
        px = pictures.image_px
        larger = round(px * 8 / 7)
        self.transform = transforms.Compose(
            [
                transforms.Resize((larger, larger)),
                transforms.RandomCrop((px, px)),
                transforms.ToTensor(),
                transforms.Normalize(NORMALIZE.mean, NORMALIZE.std),
            ]
        )

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, position):
        source, index = self.pictures.source, self.pictures.indices[position]
        if isinstance(source, InMemory):
            image = Image.fromarray(source.pixels[index])
        else:
            with Image.open(source.paths[index]) as opened:  # as torchvision's ImageFolder does
                image = opened.convert("RGB")
        return self.transform(image), self.pictures.labels[index]


def chosen(what, image_px, n):
    """Returns n pictures, or as many as there are, of what --data names; None for noise.

    Raises:
        UserError: the pictures are missing, unusable, cannot be downloaded, or are in neither way
            prepared.
    """
    if what is None:
        pixels = np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        return Pictures(InMemory(pixels), [0] * n, list(range(n)), image_px, seed=0)
    args = types.SimpleNamespace(data=what, image_px=image_px, seed=0)
    pictures = data.image_sets(args)[0][0]
    if not isinstance(pictures, Pictures):
        raise UserError(f"--data {what}: these need no preparation; pass cifar10 or a folder")
    pictures.indices = pictures.indices[:n]
    return pictures


def speeds(pictures, batch_size, workers):
    """Returns how many pictures per second are prepared: here, and as in 2023.

    Args:
        pictures: a Pictures.
        batch_size: pictures per batch.
        workers: processes that prepare them; 0 for this one.
    """
    order = Order(pictures, batch_size, shuffle=True, seed=0, with_epoch=True)
    options = {"batch_size": batch_size, "num_workers": workers, "persistent_workers": workers > 0}
    loaders = [
        DataLoader(pictures, sampler=order, **options),
        DataLoader(As2023(pictures), shuffle=True, **options),
    ]
    seconds = []
    for _ in range(1 + ROUNDS):  # in turns, so that what else the machine does slows both
        seconds.append([_seconds(loader) for loader in loaders])
    here, before = zip(*seconds[1:])  # in the first, workers start
    return len(pictures) / min(here), len(pictures) / min(before)


def _seconds(loader):
    started = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - started


def main(argv=None):
    p = Parser(description=__doc__.splitlines()[0])
    what = "cifar10, or a folder of pictures (default: noise in the form of CIFAR-10)"
    workers = "worker processes that prepare them (default: none, this process does)"
    p.add_argument("--data", type=name, metavar="WHAT", help=what)
    p.add_argument("--workers", type=positive, default=0, metavar="N", help=workers)
    p.add_argument("--image-px", type=positive, default=224, metavar="PX", help="default: 224")
    p.add_argument("--batch-size", type=positive, default=64, metavar="N", help="default: 64")
    p.add_argument("--images", type=positive, default=2048, metavar="N", help="default: 2048")
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    pictures = chosen(args.data, args.image_px, args.images)
    cores = max(args.workers, 1)
    busy = f"{cores} worker{'s' * (cores > 1)}" if args.workers else "1 process"
    print(f"{len(pictures):,} pictures to {args.image_px} px on {device_name(torch.device('cpu'))}")
    print(f"{busy}, batches of {args.batch_size}\n")
    here, before = speeds(pictures, args.batch_size, args.workers)
    for way, speed in (("here", here), ("2023 transforms", before)):
        print(f"{way:15}  {speed:7,.0f} images/s  {speed / cores:7,.0f} per core")
    print(f"{'here / 2023':15}  {here / before:7.2f}")
    return here, before


if __name__ == "__main__":
    run(main)
