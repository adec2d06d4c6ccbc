"""Replacements for what a script loads and saves: batches, data sets, weights and files."""

import contextlib
import functools
import inspect
import os
import shutil
from unittest import mock

import huggingface_hub
import numpy as np
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torchvision.models._api
from lightning.fabric import Fabric
from torch.utils.data import DataLoader
from torchvision import datasets
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, Trainer

from shared.memory.torch_private import wrapped
from shared.text.models import KNOWN as KNOWN_CONFIGS

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
RENAMING = [(os, "replace"), (os, "rename"), (shutil, "move"), (shutil, "copy")]
RENAMING += [(shutil, "copyfile"), (shutil, "copy2")]

# Functions that save, besides torch.save.
SAVING = [(Fabric, "save"), (PreTrainedModel, "save_pretrained"), (Trainer, "save_model")]
SAVING += [(Trainer, "_save_checkpoint"), (safetensors.torch, "save_file"), (dcp, "save")]
SAVING += [(PreTrainedTokenizerBase, "save_pretrained")]


@contextlib.contextmanager
def replaced(run, shape=None):
    """Replace how a Run's script loads and saves, while the context is active.

    `shape` is of the images that stand in for missing data sets of torchvision.
    """
    with contextlib.ExitStack() as stack:

        def replace(owner, name, wrapper):
            original = getattr(owner, name)
            stack.enter_context(wrapped(owner, name, wrapper))
            # Some callers, such as Fabric, inspect the names of arguments.
            functools.update_wrapper(getattr(owner, name), original)

        replace(DataLoader, "__init__", _alone)
        replace(DataLoader, "__iter__", lambda original, loader: run.batches(original(loader)))
        for name, known in KNOWN.items():
            replace(getattr(datasets, name), "__init__", Noise(run.note, name, *known, shape).init)
            replace(getattr(datasets, name), "__getitem__", _item)
            replace(getattr(datasets, name), "__len__", _length)
        replace(torchvision.models._api.WeightsEnum, "get_state_dict", run.files.weights)
        replace(torch.hub, "load_state_dict_from_url", run.files.weights)
        replace(torch.nn.Module, "load_state_dict", _load)
        if os.environ.get("WORLD_SIZE"):  # this process is rank 0, and the others are not there
            replace(mp, "spawn", lambda _, run, args=(), **__: run(0, *args))
        for owner, name in RENAMING:
            replace(owner, name, run.files.renamed)
        for name in ("remove", "unlink"):
            replace(os, name, run.files.removed)
        for owner, name in SAVING:
            replace(owner, name, run.files.unsaved)
        found = PreTrainedModel.from_pretrained.__func__
        pretrained = classmethod(functools.partial(_pretrained, run.files, found))
        stack.enter_context(mock.patch.object(PreTrainedModel, "from_pretrained", pretrained))
        configs = classmethod(functools.partial(_config, PreTrainedConfig.get_config_dict.__func__))
        stack.enter_context(mock.patch.object(PreTrainedConfig, "get_config_dict", configs))
        replace(torch, "save", run.files.save)
        replace(torch, "load", run.files.load)
        replace(safetensors.torch, "load_file", run.files.load)
        replace(huggingface_hub, "hf_hub_download", run.files.fetched)
        yield


def _alone(original, loader, *args, **kwargs):
    names = [*inspect.signature(original).parameters][1:]
    original(loader, **{**dict(zip(names, args)), **kwargs, **ALONE})


def _config(original, cls, name, **kwargs):
    return original(cls, KNOWN_CONFIGS.get(str(name), name), **kwargs)


def _pretrained(files, original, cls, name, *args, config=None, **kwargs):
    """Load a model; where its weights are missing, from a file of its weights without values."""
    try:
        return original(cls, name, *args, config=config, **kwargs)
    except OSError:  # not in the cache, and not reached
        pass
    if not isinstance(config, PreTrainedConfig):
        known = {key: kwargs[key] for key in ("trust_remote_code", "revision") if key in kwargs}
        config = cls.config_class.from_pretrained(config or name, **known)
    files.weights(None)
    folder = files.without_values(cls, config)
    return original(cls, folder, *args, config=config, **kwargs)


# Weights that could not be downloaded are {}: the model's own.
def _load(original, model, state_dict, *args, **kwargs):
    return original(model, state_dict or model.state_dict(), *args, **kwargs)


class Noise:
    """Images of noise in place of a missing data set."""

    def __init__(self, note, name, known, classes, count, shape):
        self.note, self.name, self.shape = note, name, shape or known
        self.classes, self.count = classes, count

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
        data.noise = datasets.FakeData(count, self.shape, self.classes)
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
