"""Replacements for the data that a script loads: a few batches, and noise for missing data sets."""

import functools
import inspect

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
    """Let wrapper(original, *args, **kwargs) answer for owner.name, for the rest of the process."""
    original = getattr(owner, name)
    # A function, since it may be a method; some callers, such as Fabric, inspect its arguments.

    def new(*args, **kwargs):
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, functools.update_wrapper(new, original))


def replace_all(run, shape=None):
    """Replace what a Run's script loads; `shape` is of images in place of missing data sets."""
    replace(DataLoader, "__init__", _alone)
    replace(DataLoader, "__iter__", lambda original, loader: run.batches(original(loader)))

    def in_torchvision(datasets):
        for name, known in KNOWN.items():
            noise = Noise(run.note, name, *known, shape, datasets.FakeData)
            replace(getattr(datasets, name), "__init__", noise.init)
            replace(getattr(datasets, name), "__getitem__", _item)
            replace(getattr(datasets, name), "__len__", _length)

    once_imported("torchvision.datasets", in_torchvision)


def _alone(original, loader, *args, **kwargs):
    names = [*inspect.signature(original).parameters][1:]
    original(loader, **{**dict(zip(names, args)), **kwargs, **ALONE})


class Noise:
    """Images of noise in place of a missing data set."""

    def __init__(self, note, name, known, classes, count, shape, make):
        self.note, self.name, self.shape = note, name, shape or known
        self.classes, self.count, self.make = classes, count, make

    def init(self, original, data, *args, **kwargs):
        try:
            return original(data, *args, **kwargs)
        except Exception as error:  # each kind of data set raises another error for missing files
            if isinstance(error, TypeError):
                raise
        given = inspect.signature(original).bind(data, *args, **kwargs).arguments
        given |= given.pop("kwargs", {})
        train = given.get("train", given.get("split", "train") not in ("val", "test"))
        count = self.count if train else max(self.count // 6, 1)
        data.noise = self.make(count, self.shape, self.classes)
        for name in ("transform", "target_transform"):
            vars(data).setdefault(name, given.get(name))
        names = [*map(str, range(self.classes))]
        # Some data sets define some of these as properties.
        vars(data).update(classes=names, targets=(np.arange(count) % self.classes).tolist())
        vars(data)["class_to_idx"] = {name: i for i, name in enumerate(names)}
        shape = " x ".join(map(str, self.shape))
        self.note(f"{self.name} is missing; images of noise, {shape}, replace it")


def _item(original, data, i):
    if not hasattr(data, "noise"):
        return original(data, i)
    changes = data.transform, data.target_transform  # timm sets them later
    return tuple(change(x) if change else x for x, change in zip(data.noise[i], changes))


def _length(original, data):
    return len(data.noise) if hasattr(data, "noise") else original(data)
