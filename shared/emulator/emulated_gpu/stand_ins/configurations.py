"""Configurations of well-known models of the Hugging Face hub, from configurations.json.

They are the sizes in the models' public config.json; what a model has by default is left out.
"""

import json
import re
from pathlib import Path

from emulated_gpu.stand_ins.notes import new_folder, note

# Endings of names whose models have the sizes of the model without it.
ALIKE = re.compile(r"-(instruct|it|base|hf|chat|chat-hf|instruct-hf|v0\.\d|instruct-v0\.\d)$")


def known(name):
    """Return the config.json of a model by its name on the hub, a dictionary, or None."""
    facts = json.loads(Path(__file__).with_suffix(".json").read_text())
    key = str(name).rpartition("/")[2].lower()
    return facts.get(key) or facts.get(ALIKE.sub("", key))


def in_transformers(module):
    """Let configurations of the module transformers.configuration_utils be known by name."""
    # The class has another name before transformers 5.
    cls = getattr(module, "PreTrainedConfig", None) or module.PretrainedConfig
    original = cls.get_config_dict.__func__

    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        try:
            return original(cls, pretrained_model_name_or_path, **kwargs)
        except OSError:  # not in the cache, and not reached
            facts = known(pretrained_model_name_or_path)
            if not facts:
                raise
        note(f"the configuration of {pretrained_model_name_or_path} is known by its name")
        path = new_folder()
        Path(path, "config.json").write_text(json.dumps(facts))
        return original(cls, path, **{**kwargs, "subfolder": ""})

    cls.get_config_dict = classmethod(get_config_dict)
