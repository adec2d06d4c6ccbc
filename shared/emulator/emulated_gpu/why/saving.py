"""Files that a script saves: checkpoints go to a scratch folder, so that nothing is overwritten."""

import functools
import os
import shutil

import torch

from emulated_gpu.imports import once_imported
from emulated_gpu.stand_ins.notes import new_folder, note, replace

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


class Files:
    """Replacements for functions that save; the first argument is the original function."""

    def __init__(self):
        self._scratch = {}  # {absolute path: path of the file in the scratch folder}
        self._folder = new_folder()

    def replace_all(self):
        """Replace the functions with which a script saves, and loads what it has saved."""
        replace(torch, "save", self.save)
        replace(torch, "load", self.load)
        for owner, name in RENAMING:
            replace(owner, name, self.renamed)
        for name in ("remove", "unlink"):
            replace(os, name, self.removed)
        for module, names in SAVING.items():
            once_imported(module, functools.partial(self.leave_unsaved, names))

    def leave_unsaved(self, names, module):
        """Let functions of a module, {class: names}, save nothing."""
        for owner, methods in names.items():
            for name in methods:
                replace(getattr(module, owner) if owner else module, name, self.unsaved)

    def save(self, original, thing, file, *args, **kwargs):
        """Save into the scratch folder; torch.load finds it there under its name."""
        if not isinstance(file, (str, os.PathLike)):  # the script has opened it
            original(thing, file, *args, **kwargs)
            return
        note("saves into a scratch folder, which is removed at the end")
        new = f"{self._folder}/{len(self._scratch)}"
        path = self._scratch.setdefault(os.path.abspath(file), new)
        original(thing, path, *args, **kwargs)

    def unsaved(self, original, *args, **kwargs):
        """Save nothing, in place of a function that saves."""
        note("saves nothing")

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
        name = getattr(file, "name", None) if hasattr(file, "read") else file
        if isinstance(name, (str, os.PathLike)):
            file = self._scratch.get(os.path.abspath(name), file)
        return original(file, *args, **kwargs)
