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
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torchmetrics
import torchvision.models._api
from lightning.fabric import Fabric
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import DataLoader
from torchvision import datasets
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, Trainer

from shared.cli import UserError
from shared.memory.torch_private import wrapped
from shared.text.models import KNOWN as KNOWN_CONFIGS

# A DataLoader's options in a simulation: batches are made in this process.
ALONE = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
ALONE |= {"pin_memory": False, "timeout": 0, "multiprocessing_context": None}
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
# Arguments of from_pretrained() that change a model, besides its configuration.
CHOSEN = ("dtype", "torch_dtype", "attn_implementation")
RENAMING = [(os, "replace"), (os, "rename"), (shutil, "move"), (shutil, "copy")]
RENAMING += [(shutil, "copyfile"), (shutil, "copy2")]

# Functions that save, besides torch.save.
SAVING = [(Fabric, "save"), (PreTrainedModel, "save_pretrained"), (Trainer, "save_model")]
SAVING += [(Trainer, "_save_checkpoint"), (safetensors.torch, "save_file"), (dcp, "save")]
SAVING += [(PreTrainedTokenizerBase, "save_pretrained")]

KERNELS = []  # of Triton; the tensors they write to exist already
with contextlib.suppress(ImportError):  # it may not be installed
    from triton.runtime import autotuner, jit

    KERNELS += [jit.JITFunction, autotuner.Autotuner, autotuner.Heuristics]


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
        replace(mp, "spawn", lambda _, run, args=(), **__: run(0, *args))
        replace(dist, "all_gather_object", _alike)
        everyone = lambda _, own, group=None: [own] * dist.get_world_size(group)
        replace(torchmetrics.metric, "gather_all_tensors", everyone)
        replace(dist, "new_group", _group)
        replace(torch._C, "_InferenceMode", _without_grad)
        replace(dist.ProcessGroup, "monitored_barrier", lambda *_, **__: None)
        replace(dist, "get_backend", lambda *_: "nccl")
        for owner, name in RENAMING:
            replace(owner, name, run.files.renamed)
        for owner, name in SAVING:
            replace(owner, name, run.files.unsaved)
        stack.enter_context(
            mock.patch.object(PreTrainedModel, "from_pretrained", _pretrained(run.note))
        )
        known = classmethod(
            lambda cls, name, **kwargs: own(cls, KNOWN_CONFIGS.get(str(name), name), **kwargs)
        )
        own = PreTrainedConfig.get_config_dict.__func__
        stack.enter_context(mock.patch.object(PreTrainedConfig, "get_config_dict", known))
        for kernel in KERNELS:
            replace(kernel, "run", run.kernel)
        replace(FullyShardedDataParallel, "__init__", functools.partial(_fsdp1, run.note))
        replace(torch, "save", run.files.save)
        replace(torch, "load", run.files.load)
        replace(safetensors.torch, "load_file", run.files.load)
        replace(huggingface_hub, "hf_hub_download", run.files.fetched)
        replace(torch, "compile", run.eager)
        yield


def _alone(original, loader, *args, **kwargs):
    names = [*inspect.signature(original).parameters][1:]
    original(loader, **{**dict(zip(names, args)), **kwargs, **ALONE})


def _pretrained(note):
    """Return a from_pretrained() that builds a model from its configuration, without values."""

    def from_pretrained(cls, name, *args, config=None, device_map=None, **kwargs):
        if kwargs.pop("quantization_config", None):
            raise UserError(f"cannot be simulated: {name} with a quantization_config")
        note(f"the weights of {name} have no values in a simulation")
        chosen = {key: kwargs.pop(key) for key in CHOSEN if key in kwargs}
        if not isinstance(config, PreTrainedConfig):
            own = {"return_unused_kwargs": True, **kwargs}
            config, _ = cls.config_class.from_pretrained(config or name, **own)
        config.name_or_path = str(name)
        chosen = {key: value for key, value in chosen.items() if value not in (None, "auto")}
        model = cls._from_config(config, **chosen).eval()
        return model.to("cuda") if device_map else model

    return classmethod(from_pretrained)


def _fsdp1(note, original, model, *args, cpu_offload=None, **kwargs):
    if cpu_offload and cpu_offload.offload_params:
        right = "fully_shard with CPUOffloadPolicy can"
        raise UserError(f"cannot be simulated: FSDP1 with CPUOffload; {right}")
    note("uses FSDP1: a GPU needs more, because gathered weights wait for streams to be freed")
    original(model, *args, cpu_offload=cpu_offload, **kwargs)


# Process groups with gloo are for the host.
def _group(original, *args, backend=None, **kwargs):
    backend = "fake" if backend and "gloo" in backend else None
    return original(*args, backend=backend, **kwargs)


# Fake tensors cannot be moved in inference mode.
def _without_grad(original, mode):
    return torch.no_grad() if mode else contextlib.nullcontext()


def _alike(original, found, own, **_):
    found[:] = [own] * len(found)


# Weights that could not be downloaded are {}: the model's own, without values.
def _load(original, model, state_dict, *args, **kwargs):
    there = model.state_dict().items()
    state_dict = state_dict or {key: torch.empty_like(t, device="cpu") for key, t in there}
    return original(model, state_dict, *args, **kwargs)


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
