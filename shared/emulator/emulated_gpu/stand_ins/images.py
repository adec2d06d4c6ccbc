"""Images of noise in place of the data sets of torchvision that are missing."""

import dataclasses
import inspect
import os

from emulated_gpu.stand_ins.notes import note, replace

SHAPE = "EMULATED_IMAGES"  # names the variable with the shape of all these images, such as 3x32x32
# Data sets of torchvision that noise replaces if they are missing: (channels, height, width),
# number of classes, number of images.
KNOWN = {
    "CIFAR10": ((3, 32, 32), 10, 50_000),
    "CIFAR100": ((3, 32, 32), 100, 50_000),
    "MNIST": ((1, 28, 28), 10, 60_000),
    "FashionMNIST": ((1, 28, 28), 10, 60_000),
    "SVHN": ((3, 32, 32), 10, 73_257),
    "STL10": ((3, 96, 96), 10, 5_000),
    "ImageFolder": ((3, 375, 500), 1000, 1_281_167),
    "ImageNet": ((3, 375, 500), 1000, 1_281_167),
}


def in_torchvision(datasets):
    """Let data sets of the module torchvision.datasets have noise where their files are missing."""
    given = os.environ.get(SHAPE)
    for name, (usual_shape, classes, count) in KNOWN.items():
        shape = tuple(map(int, given.split("x"))) if given else usual_shape
        noise = Noise(name, shape, classes, count, datasets.FakeData)
        replace(getattr(datasets, name), "__init__", noise.init)
        replace(getattr(datasets, name), "__getitem__", _item)
        replace(getattr(datasets, name), "__len__", _length)


@dataclasses.dataclass
class Noise:
    """Images of noise in place of a missing data set."""

    name: str
    shape: tuple
    classes: int
    count: int  # for training
    fake_data: type  # torchvision.datasets.FakeData

    def init(self, original, data, *args, **kwargs):
        """Stand for the __init__() of a data set, whose `original` it tries first."""
        try:
            return original(data, *args, **kwargs)
        except TypeError:  # a mistake in the script
            raise
        except Exception:  # each kind of data set raises another error for missing files
            pass
        arguments = inspect.signature(original).bind(data, *args, **kwargs).arguments
        arguments |= arguments.pop("kwargs", {})
        is_training = arguments.get("split", "train") not in ("val", "test")
        is_training = arguments.get("train", is_training)
        # Most of these data sets have five to seven images for training per image for tests.
        count = self.count if is_training else max(self.count // 6, 1)
        data.noise = self.fake_data(count, self.shape, self.classes)
        for name in ("transform", "target_transform"):
            vars(data).setdefault(name, arguments.get(name))
        names = [str(n) for n in range(self.classes)]
        # Into the dictionary, since some data sets define some of these as properties.
        vars(data)["classes"] = names
        vars(data)["targets"] = [i % self.classes for i in range(count)]
        vars(data)["class_to_idx"] = {name: i for i, name in enumerate(names)}
        shape = " x ".join(map(str, self.shape))
        note(f"{self.name} is missing; images of noise, {shape}, replace it")


def _item(original, data, i):
    if not hasattr(data, "noise"):
        return original(data, i)
    image, target = data.noise[i]
    if data.transform:  # read here, since timm sets it later
        image = data.transform(image)
    if data.target_transform:
        target = data.target_transform(target)
    return image, target


def _length(original, data):
    return len(data.noise) if hasattr(data, "noise") else original(data)
