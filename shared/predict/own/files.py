"""Files that a script loads and saves: missing weights, and checkpoints."""

import json
import os
import tempfile
from pathlib import Path

import torch

# Types in files of safetensors: https://huggingface.co/docs/safetensors/index#format
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
NAMES |= {torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8"}
NAMES |= {torch.bool: "BOOL"}
WEIGHTS = ".safetensors", ".bin", ".pt", ".pth"


class Files:
    """Replacements for functions on files; the first argument is the original function."""

    def __init__(self, note):
        self._note, self._scratch = note, {}
        self._folder = tempfile.TemporaryDirectory()
        self._unfetched = f"{self._folder.name}/weights"

    def weights(self, original, *args, **kwargs):
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

    def without_values(self, cls, config):
        """Return a folder with the weights of a model of transformers, in a file without data."""
        folder = Path(self._folder.name, str(len(os.listdir(self._folder.name))))
        folder.mkdir()
        with torch.device("meta"):
            model = cls(config)
        dtype, header, end = config.dtype or torch.float32, {}, 0
        for name, t in model.state_dict().items():
            kind = dtype if t.is_floating_point() else t.dtype
            nbytes = t.numel() * kind.itemsize
            its = {"dtype": NAMES[kind], "shape": [*t.shape], "data_offsets": [end, end + nbytes]}
            header[name], end = its, end + nbytes
        text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
        with open(folder / "model.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
        config.save_pretrained(folder)
        return str(folder)

    def save(self, original, thing, file, *args, **kwargs):
        file = _named(file)
        if not isinstance(file, (str, os.PathLike)):
            return
        self._note("saves into a scratch folder, which is removed at the end")
        new = f"{self._folder.name}/{len(self._scratch)}"
        path = self._scratch.setdefault(os.path.abspath(file), new)
        original(thing, path, *args, **kwargs)

    def unsaved(self, original, *args, **kwargs):
        self._note("saves nothing")

    def renamed(self, original, source, target, *args, **kwargs):
        """Rename or copy a file; one in the scratch folder stays there, under another name."""
        if scratch := self._scratch.get(os.path.abspath(source)):
            self._scratch[os.path.abspath(target)] = scratch
            return target
        return original(source, target, *args, **kwargs)

    def removed(self, original, path, *args, **kwargs):
        if not self._scratch.pop(os.path.abspath(path), None):
            original(path, *args, **kwargs)

    def load(self, original, file, *args, **kwargs):
        name = _named(file)
        if name == self._unfetched:
            return {}
        if isinstance(name, (str, os.PathLike)):
            file = self._scratch.get(os.path.abspath(name), file)
        return original(file, *args, **kwargs)


def _named(file):
    """Return the name of an open file, None if it has none; return a path as it is."""
    return getattr(file, "name", None) if hasattr(file, "read") else file
