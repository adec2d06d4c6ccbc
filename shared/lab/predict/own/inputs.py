"""Replacements for the data that a script loads: a few batches, and noise for missing data sets."""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import numpy as np
from torch.utils.data import DataLoader

from emulated_gpu.imports import once_imported

# A DataLoader's options here: batches are made in this process, so their time is known.
ALONE = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
ALONE |= {"timeout": 0, "multiprocessing_context": None}
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


def replace(owner, name, wrapper):
    """Let wrapper(original, *args, **kwargs) stand for owner.name, for the rest of the process."""
    original = getattr(owner, name)

    # A function, since it may be a method; some callers, such as Fabric, inspect its arguments.
    def new(*args, **kwargs):
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, functools.update_wrapper(new, original))


def replace_all(run, shape=None):
    """Replace the data that a Run's script loads.

    Args:
        run: own.script.Run.
        shape: (channels, height, width) of images in place of missing data sets.
    """
    replace(DataLoader, "__init__", _alone)
    replace(DataLoader, "__iter__", lambda original, loader: run.batches(original(loader)))

    def in_torchvision(datasets):
        for name, (usual_shape, classes, count) in KNOWN.items():
            fake_data = datasets.FakeData
            noise = Noise(run.note, name, shape or usual_shape, classes, count, fake_data)
            replace(getattr(datasets, name), "__init__", noise.init)
            replace(getattr(datasets, name), "__getitem__", _item)
            replace(getattr(datasets, name), "__len__", _length)

    once_imported("torchvision.datasets", in_torchvision)


def _alone(original, loader, *args, **kwargs):
    names = [*inspect.signature(original).parameters][1:]
    original(loader, **{**dict(zip(names, args)), **kwargs, **ALONE})


@dataclasses.dataclass
class Noise:
    """Images of noise in place of a missing data set; note(text) says so."""

    note: Callable
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
        vars(data)["targets"] = (np.arange(count) % self.classes).tolist()
        vars(data)["class_to_idx"] = {name: i for i, name in enumerate(names)}
        shape = " x ".join(map(str, self.shape))
        self.note(f"{self.name} is missing; images of noise, {shape}, replace it")


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
