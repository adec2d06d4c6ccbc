"""A host that stays cheap: large random weights are not drawn, since nobody computes with them."""

import functools

import torch

from emulated_gpu.memory import LARGE


def begin():
    """Let torch.nn.init leave large tensors on the host as they are: pages that nobody touched."""
    for name in dir(torch.nn.init):
        function = getattr(torch.nn.init, name)
        if name.endswith("_") and not name.startswith("_") and callable(function):
            setattr(torch.nn.init, name, _unless_large(function))


def _unless_large(function):
    @functools.wraps(function)
    def init(tensor, *args, **kwargs):
        large = tensor.device.type == "cpu" and tensor.numel() * tensor.element_size() > LARGE
        return tensor if large else function(tensor, *args, **kwargs)

    return init
