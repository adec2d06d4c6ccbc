"""Files that a script loads and saves: missing weights, and checkpoints."""

import os
import tempfile

import torch

from shared.predict.own.cuda import translated

WEIGHTS = ".safetensors", ".bin", ".pt", ".pth"


class Files:
    """Replacements for functions on files; the first argument is the original function."""

    def __init__(self, note):
        self._note, self._scratch = note, {}
        self._folder = tempfile.TemporaryDirectory()
        self._unfetched = f"{self._folder.name}/weights"

    def weights(self, original, *args, **kwargs):
        self._note("weights are not downloaded; they have no values in a simulation")
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

    def save(self, original, thing, file, *args, **kwargs):
        file = _named(file)
        if not isinstance(file, (str, os.PathLike)):
            return
        self._note("saves into a scratch folder, which is removed at the end")
        new = f"{self._folder.name}/{len(self._scratch)}"
        path = self._scratch.setdefault(os.path.abspath(file), new)
        with torch.serialization.skip_data(materialize_fake_tensors=True):
            original(thing, path, *args, **kwargs)

    def unsaved(self, original, *args, **kwargs):
        self._note("saves nothing in a simulation")

    def renamed(self, original, source, target, *args, **kwargs):
        """Rename or copy a file; one in the scratch folder stays there, under another name."""
        if scratch := self._scratch.get(os.path.abspath(source)):
            self._scratch[os.path.abspath(target)] = scratch
            return target
        return original(source, target, *args, **kwargs)

    def load(self, original, file, *args, **kwargs):
        name = _named(file)
        if name == self._unfetched:
            return {}
        if isinstance(name, (str, os.PathLike)):
            file = self._scratch.get(os.path.abspath(name), file)
        if "map_location" in kwargs:
            kwargs["map_location"] = translated(kwargs["map_location"])
        return original(file, *args, **kwargs)


def _named(file):
    """Return the name of an open file, None if it has none; return a path as it is."""
    return getattr(file, "name", None) if hasattr(file, "read") else file
