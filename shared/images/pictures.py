"""Pictures in memory or in files, as a model takes them: enlarged, cropped and normalized."""

import hashlib

import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2

from shared.common.errors import UserError, shown

# The statistics of ImageNet, which the pretrained models expect:
# https://docs.pytorch.org/vision/stable/models.html
NORMALIZE = v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])

# What Pillow reads by itself. For others, it may call a program: Ghostscript for EPS.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "TIFF", "WEBP", "MPO", "JPEG2000")


class Pictures(Dataset):
    """A part of some pictures, and their labels.

    A picture is resized to 8/7 of the model's edge and cropped: in the centre, or at a place that
    depends on the seed, the epoch and the picture's index alone. So it does not matter how many
    processes read them, or whether a training was interrupted.
    """

    def __init__(self, source, labels, indices, image_px, seed=None):
        """Chooses the pictures.

        Args:
            source: sequence of pictures, resized as it is told: source.resized(i, edge) returns
                (3, edge, edge) in uint8.
            labels: list of int, of all pictures of the source.
            indices: list of int, which pictures of the source these are.
            image_px: edge of the crops, in pixels.
            seed: for random crops; None for the centre.
        """
        self.source, self.labels, self.indices = source, labels, indices
        self.image_px, self.seed = image_px, seed
        self.batch = torch.empty(0)

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, pick):
        ((picture, label),) = self.__getitems__([pick])
        return picture.clone(), label

    def __getitems__(self, picks):
        """Returns a list of pictures, (3, image_px, image_px) in fp32, and labels.

        They are overwritten by the next call; default_collate, which copies them, is in between.
        A new tensor for each batch would take longer than all the rest: the operating system would
        have to find, and to empty, its memory.

        Args:
            picks: a DataLoader's list of positions; of (epoch, position) for random crops.

        Raises:
            UserError: a file is not a readable picture.
        """
        if len(self.batch) < len(picks):
            self.batch = torch.empty(len(picks), 3, self.image_px, self.image_px)
        mean, std = (torch.tensor(x)[:, None, None] for x in (NORMALIZE.mean, NORMALIZE.std))
        edge, px = round(self.image_px * 8 / 7), self.image_px  # 256 for 224
        examples = []
        for pick, out in zip(picks, self.batch):
            epoch, position = pick if isinstance(pick, tuple) else (0, pick)
            index = self.indices[position]
            top, left = self._corner(epoch, index, edge - px)
            picture = self.source.resized(index, edge)[:, top : top + px, left : left + px]
            # As v2.ToDtype and NORMALIZE do, but one picture at a time and in place: 0.6 MB remain
            # in the processor's cache.
            out.copy_(picture).mul_(1 / 255).sub_(mean).div_(std)
            examples.append((out, self.labels[index]))
        return examples

    def __getstate__(self):  # for a worker process that is no fork
        return {**self.__dict__, "batch": torch.empty(0)}

    def _corner(self, epoch, index, room):
        if self.seed is None:
            return 2 * (int(round(room / 2)),)
        key = f"{self.seed} {epoch} {index}".encode()  # a hash of it is quicker than a generator
        number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
        return divmod(number % (room + 1) ** 2, room + 1)


class InMemory:
    """Small square pictures in memory.

    Args:
        pixels: (n, px, px, 3) array in uint8.
    """

    def __init__(self, pixels):
        self.pixels = pixels
        self.planes = torch.from_numpy(pixels).permute(0, 3, 1, 2)

    def resized(self, i, edge):
        if _is_exact(self.pixels.shape[1:3], edge):
            return _enlarged(self.planes[i], edge)
        return _resized(Image.fromarray(self.pixels[i]), edge)


class Files:
    """Pictures in files.

    Args:
        paths: list of str.
    """

    def __init__(self, paths):
        self.paths = paths

    def resized(self, i, edge):
        path = self.paths[i]
        try:
            with Image.open(path, formats=FORMATS) as image:
                if image.mode.startswith("I"):  # 16 bits, of which convert() would take the lower 8
                    image = image.point(lambda value: value * (1 / 256)).convert("L")
                return _resized(image.convert("RGB"), edge)
        except Exception:  # Pillow's plugins raise nearly anything for a damaged file
            raise UserError(f"{shown(path)} is not a readable picture; mend or remove it") from None


def _resized(image, edge):
    if _is_exact(image.size, edge):
        return _enlarged(v2.functional.pil_to_tensor(image), edge)
    return v2.functional.pil_to_tensor(image.resize((edge, edge), Image.Resampling.BILINEAR))


def _is_exact(sizes, edge):
    """Tells whether PyTorch, which is quicker, resizes to the same bits as Pillow.

    All weights are then multiples of a power of 1/2. Elsewhere a few pixels differ by 1 or 2 of
    255, because the two round differently.
    """
    return all(edge / size in (1, 2, 4, 8, 16) for size in sizes)


def _enlarged(planes, edge):
    size = (edge, edge)
    return F.interpolate(planes[None], size=size, mode="bilinear", antialias=True)[0]
