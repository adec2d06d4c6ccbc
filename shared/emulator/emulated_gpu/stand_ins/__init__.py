"""Stand-ins for what a program would download: weights, tokenizers, configurations, data sets.

Each takes the place of a thing that is missing; what is there is used. Packages are changed when
the program imports them, PyTorch too, so that a program without them starts as fast.
"""

import functools

from emulated_gpu.imports import once_imported
from emulated_gpu.stand_ins import (
    configurations,
    groups,
    hub,
    images,
    metrics,
    rows,
    tokenizers,
    weights,
)

CHANGES = {  # {module: what changes it}
    "torch": (weights.in_torch, groups.in_torch),
    "safetensors.torch": (weights.in_safetensors,),
    "huggingface_hub.constants": (hub.in_constants,),
    "huggingface_hub.file_download": (weights.in_hub,),
    "transformers.configuration_utils": (configurations.in_transformers,),
    "transformers.modeling_utils": (weights.in_transformers,),
    "transformers.tokenization_utils_base": (tokenizers.in_base,),
    "transformers.models.auto.tokenization_auto": (tokenizers.in_auto,),
    "torchvision.models._api": (weights.in_torchvision,),
    "torchvision.datasets": (images.in_torchvision,),
    "datasets.load": (rows.in_datasets,),
    "evaluate.loading": (metrics.in_evaluate,),
}


def install():
    """Let packages, when they are imported, give a stand-in where something is missing."""
    for module, changes in CHANGES.items():
        for change in changes:
            once_imported(module, functools.partial(_if_it_can, change))


def _if_it_can(change, module):
    """Change a module, unless its version lacks what is changed: then nothing stands in."""
    try:
        change(module)
    except AttributeError:
        pass
