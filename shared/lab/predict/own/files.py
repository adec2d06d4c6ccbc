"""Replacements for the files that a script loads and saves: missing weights, and checkpoints."""

import functools
import os
import shutil
import tempfile
from pathlib import Path

import torch

from emulated_gpu import process
from emulated_gpu.imports import once_imported
from shared.lab.predict.own.inputs import replace

WEIGHTS = ".safetensors", ".bin", ".pt", ".pth"
RENAMING = [(os, "replace"), (os, "rename"), (shutil, "move"), (shutil, "copy")]
RENAMING += [(shutil, "copyfile"), (shutil, "copy2")]
# Methods and functions that save, besides torch.save: {module: {class: names}}; "" is the module.
SAVING = {
    "lightning.fabric.fabric": {"Fabric": ["save"]},
    "transformers.modeling_utils": {"PreTrainedModel": ["save_pretrained"]},
    "transformers.tokenization_utils_base": {"PreTrainedTokenizerBase": ["save_pretrained"]},
    "lightning.pytorch.trainer.trainer": {"Trainer": ["save_checkpoint"]},
    "pytorch_lightning.trainer.trainer": {"Trainer": ["save_checkpoint"]},
    "transformers.trainer": {"Trainer": ["save_model", "_save_checkpoint"]},
    "safetensors.torch": {"": ["save_file"]},
    "torch.distributed.checkpoint": {"": ["save"]},
}


def replace_all(files):
    """Replace the functions with which a script loads and saves by the methods of a Files."""
    replace(torch, "save", files.save)
    replace(torch, "load", files.load)
    replace(torch.hub, "load_state_dict_from_url", files.weights)
    replace(torch.nn.Module, "load_state_dict", _load)
    for owner, name in RENAMING:
        replace(owner, name, files.renamed)
    for name in ("remove", "unlink"):
        replace(os, name, files.removed)
    for module, names in SAVING.items():
        once_imported(module, functools.partial(files.leave_unsaved, names))
    loading = {
        "safetensors.torch": ("", "load_file", files.load),
        "huggingface_hub.file_download": ("", "hf_hub_download", files.fetched),
        "torchvision.models._api": ("WeightsEnum", "get_state_dict", files.weights),
    }
    for module, (owner, name, method) in loading.items():
        once_imported(module, functools.partial(_replace_in, owner, name, method))
    once_imported("transformers.modeling_utils", files.in_transformers)
    once_imported("transformers.configuration_utils", _in_configurations)


def _replace_in(owner, name, method, module):
    replace(getattr(module, owner) if owner else module, name, method)


def _load(original, model, state_dict, *args, **kwargs):
    # Weights that could not be downloaded are {}: the model keeps its own.
    return original(model, state_dict or model.state_dict(), *args, **kwargs)


def _in_configurations(module):
    cls = module.PreTrainedConfig
    original = cls.get_config_dict.__func__

    def get_config_dict(cls, name, **kwargs):
        from shared.text.models import KNOWN  # when transformers has been imported

        return original(cls, KNOWN.get(str(name), name), **kwargs)

    cls.get_config_dict = classmethod(get_config_dict)


class Files:
    """Replacements for functions on files; the first argument is the original function.

    A script's checkpoints go to a scratch folder, so that a prediction overwrites nothing.
    """

    def __init__(self, note):
        """Begin without files; note(text) prints a note on the running line."""
        self._note = note
        self._scratch = {}  # {absolute path: path of the file in the scratch folder}
        self._folder = tempfile.TemporaryDirectory()
        self._unfetched = f"{self._folder.name}/weights"

    def weights(self, original, *args, **kwargs):
        """Return no weights in place of a download."""
        self._note("weights are not downloaded; they have no values here")
        return {}

    def fetched(self, original, *args, **kwargs):
        """Download a file from a hub; for missing weights, return a path that load() knows."""
        try:
            return original(*args, **kwargs)
        except Exception:  # each version raises another error if it is missing
            name = kwargs.get("filename", "") or (args[1] if len(args) > 1 else "")
            if not name.endswith(WEIGHTS):
                raise
        self.weights(None)
        return self._unfetched

    def leave_unsaved(self, names, module):
        """Let functions of a module, {class: names}, save nothing."""
        for owner, methods in names.items():
            for name in methods:
                replace(getattr(module, owner) if owner else module, name, self.unsaved)

    def in_transformers(self, module):
        """Let from_pretrained() take a file without data where weights are missing."""
        original = module.PreTrainedModel.from_pretrained.__func__

        # The argument has transformers' name for it, since some give it by name.
        def from_pretrained(cls, pretrained_model_name_or_path, *args, config=None, **kwargs):
            name = pretrained_model_name_or_path
            try:
                return original(cls, name, *args, config=config, **kwargs)
            except OSError:  # not in the cache, and not reached
                pass
            if not isinstance(config, module.PreTrainedConfig):
                shared = {k: kwargs[k] for k in ("trust_remote_code", "revision") if k in kwargs}
                config = cls.config_class.from_pretrained(config or name, **shared)
            self.weights(None)
            folder = self.without_values(cls, config)
            return original(cls, folder, *args, config=config, **kwargs)

        module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)

    def without_values(self, cls, config):
        """Return a folder with the weights of a model of transformers, in a file without data."""
        folder = Path(self._folder.name, str(len(os.listdir(self._folder.name))))
        folder.mkdir()
        with torch.device("meta"):
            state = cls(config).state_dict()
        process.write_safetensors(
            folder / "model.safetensors", state, config.dtype or torch.float32
        )
        config.save_pretrained(folder)
        return str(folder)

    def save(self, original, thing, file, *args, **kwargs):
        """Save into the scratch folder; torch.load finds it there under its name."""
        if not isinstance(file, (str, os.PathLike)):  # the script has opened it
            original(thing, file, *args, **kwargs)
            return
        self._note("saves into a scratch folder, which is removed at the end")
        new = f"{self._folder.name}/{len(self._scratch)}"
        path = self._scratch.setdefault(os.path.abspath(file), new)
        original(thing, path, *args, **kwargs)

    def unsaved(self, original, *args, **kwargs):
        """Save nothing, in place of a function that saves."""
        self._note("saves nothing")

    def renamed(self, original, source, target, *args, **kwargs):
        """Rename or copy a file; one in the scratch folder stays there, under another name."""
        if scratch := self._scratch.get(os.path.abspath(source)):
            self._scratch[os.path.abspath(target)] = scratch
            return target
        return original(source, target, *args, **kwargs)

    def removed(self, original, path, *args, **kwargs):
        """Remove a file; of a file in the scratch folder remove only the name."""
        if not self._scratch.pop(os.path.abspath(path), None):
            original(path, *args, **kwargs)

    def load(self, original, file, *args, **kwargs):
        """Load a file, from the scratch folder if it was saved there."""
        name = _named(file)
        if name == self._unfetched:
            return {}
        if isinstance(name, (str, os.PathLike)):
            file = self._scratch.get(os.path.abspath(name), file)
        return original(file, *args, **kwargs)


def _named(file):
    """Return the name of an open file, None if it has none; return a path as it is."""
    return getattr(file, "name", None) if hasattr(file, "read") else file
