"""Weights that are missing: PyTorch keeps those that the model was made with, which have no values.

A model's memory is that of its shapes, so it does not depend on values.
"""

import os

from emulated_gpu.stand_ins.notes import folder, new_folder, note, replace

NOTE = "weights are not downloaded; they have no values here"
ENDINGS = ".safetensors", ".bin", ".pt", ".pth"
# Options of from_pretrained() with which it finds a configuration, too, and those that choose among
# files of weights, of which a stand-in has one.
OF_CONFIGURATION = "trust_remote_code", "revision", "subfolder"
OF_FILES = "subfolder", "variant", "use_safetensors"


def _unfetched():
    """Return the path that stands for a file of weights which is missing."""
    return f"{folder().name}/weights"


def in_torch(torch):
    """Let PyTorch, the module, go on without weights that it cannot download."""
    replace(torch, "load", _load)
    replace(torch.hub, "load_state_dict_from_url", _none)
    replace(torch.nn.Module, "load_state_dict", _keep)


def in_safetensors(module):
    """Let load_file() of the module safetensors.torch know the path of missing weights."""
    replace(module, "load_file", _load)


def in_hub(module):
    """Let hf_hub_download() of a module of huggingface_hub give that path."""
    replace(module, "hf_hub_download", _fetched)


def in_torchvision(module):
    """Let weights of the module torchvision.models._api be left out."""
    replace(module.WeightsEnum, "get_state_dict", _none)


def _none(original, *args, **kwargs):
    """Return no weights in place of a download: they would have no values here anyway."""
    note(NOTE)
    return {}


def _keep(original, model, state_dict, *args, **kwargs):
    return original(model, state_dict or model.state_dict(), *args, **kwargs)


def _load(original, file, *args, **kwargs):
    """Load a file, unless it stands for missing weights."""
    is_missing = isinstance(file, (str, os.PathLike)) and str(file) == _unfetched()
    return {} if is_missing else original(file, *args, **kwargs)


def _fetched(original, *args, **kwargs):
    """Fetch a file from a hub; for missing weights, return a path that _load() knows."""
    try:
        return original(*args, **kwargs)
    except Exception:  # each version raises another error if it is missing
        name = kwargs.get("filename", "") or (args[1] if len(args) > 1 else "")
        if not name.endswith(ENDINGS):
            raise
    note(NOTE)
    return _unfetched()


def in_transformers(module):
    """Let from_pretrained() take a file without data where weights are missing."""
    original = module.PreTrainedModel.from_pretrained.__func__

    # The argument has transformers' name for it, since some give it by name.
    def from_pretrained(cls, pretrained_model_name_or_path, *args, config=None, **kwargs):
        name = pretrained_model_name_or_path
        try:
            return original(cls, name, *args, config=config, **kwargs)
        except OSError:  # not in the cache, and not reached
            pass
        if not hasattr(config, "to_dict"):  # a name, a folder or None, no configuration
            shared = {k: kwargs[k] for k in OF_CONFIGURATION if k in kwargs}
            config = cls.config_class.from_pretrained(config or name, **shared)
        note(NOTE)
        kwargs = {k: value for k, value in kwargs.items() if k not in OF_FILES}
        return original(cls, _without_values(cls, config), *args, config=config, **kwargs)

    module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)


def _without_values(cls, config):
    """Return a folder with the weights of a model of transformers, in a file without data."""
    import torch

    from emulated_gpu import process

    path = new_folder()
    with torch.device("meta"):
        state = cls(config).state_dict(keep_vars=True)
    # Tied weights once, as files of the hub have them: of both, some versions make two.
    names = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), name)
    state = {name: state[name] for name in names.values()}
    process.write_safetensors(f"{path}/model.safetensors", state, config.dtype or torch.float32)
    config.save_pretrained(path)
    return path
