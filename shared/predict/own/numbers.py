"""Tensors with and without values, and substitutes for the values that are missing.

Tensors on the simulated GPU have no values. Those on the host have, except for weights and large
tensors, so data sets, tokenizers and schedules compute as usual.
"""

import sys

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from shared.predict import gpu
from shared.predict.own.cuda import translated

LARGE = 64 * 2**20  # bytes; a tensor of this size or more has no values on the host either
aten = torch.ops.aten
EMPTY = {aten.empty.memory_format, aten.empty_strided.default}
# Where the size of a result depends on values: the largest possible size.
CHOICES = "selects by values that a simulation does not have; the largest selection is assumed"


class Mode(gpu.Mode):
    """Fake tensors, except on the host, with substitutes for their values."""

    def __init__(self, note):
        """Report to note(text, own) what is unknown; own if only the script's own reads matter."""
        super().__init__(allow_non_fake_inputs=True)
        self._note = note

    def _read(self, text):
        self._note(text, own=True)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # In the backward pass, nothing else translates devices.
        kwargs = {key: translated(value) for key, value in (kwargs or {}).items()}
        leaves = tree_leaves((args, kwargs))
        if not any(isinstance(leaf, FakeTensor) for leaf in leaves) and _on_host(leaves):
            made_of = any(isinstance(leaf, torch.Tensor) for leaf in leaves)
            if (
                made_of
                or not (func in EMPTY and any(args[0]) and _building())
                and self._small(func, args, kwargs)
            ):
                return func(*args, **kwargs)
        elif found := self._instead(func, args, kwargs):
            return found[0]
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _small(self, func, args, kwargs):
        made = super().__torch_dispatch__(func, (), args, kwargs)
        return sum(t.nbytes for t in tree_leaves(made) if isinstance(t, torch.Tensor)) < LARGE

    def _instead(self, func, args, kwargs):
        """Return (the result,) of an operation that needs values, None for any other."""
        if func is aten._local_scalar_dense.default and args[0].constant is None:
            return (self.number(args[0]),)
        if func in (aten.equal.default, aten.allclose.default):
            return (True,)
        if func is aten.nonzero.default and self.texts is None:
            self._note(CHOICES)
            return (args[0].new_empty(args[0].numel(), args[0].ndim, dtype=torch.long),)
        if func is aten.masked_select.default:
            self._note(CHOICES)
            return (
                args[0].new_empty(torch.broadcast_shapes(args[0].shape, args[1].shape).numel()),
            )
        if func in (aten._unique2.default, aten.unique_dim.default):
            long = args[0].new_empty(args[0].shape, dtype=torch.long)
            return ((args[0].new_empty(1), long, long.new_empty(1)),)
        if func is aten.bincount.default:
            least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
            return (args[0].new_empty(least or 1, dtype=torch.long),)
        return None

    def number(self, tensor):
        """Return the substitute for a tensor's value, and note it if the script itself reads it."""
        if tensor.dtype == torch.bool:
            self._read("decides by a value that a simulation does not have; False is used")
            return False
        found = 1.0 if tensor.is_floating_point() else 1
        self._read(f"reads a value that a simulation does not have; {found} is used")
        return found

    def array(self, tensor):
        """Return the substitutes for a tensor's values, as an array."""
        if tensor.constant is not None:
            return tensor.constant.numpy()
        self._read("reads values that a simulation does not have; ones, or False, are used")
        dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
        kind = np.dtype(str(dtype).removeprefix("torch."))
        return np.zeros(tensor.shape, kind) if dtype == torch.bool else np.ones(tensor.shape, kind)


def _on_host(leaves):
    return all(leaf.type == "cpu" for leaf in leaves if isinstance(leaf, torch.device))


def _building():
    """Return whether a module is being constructed, which will fill its empty tensors."""
    frame = sys._getframe(2)
    while frame:
        if frame.f_code.co_name == "__init__":
            if isinstance(frame.f_locals.get("self"), torch.nn.Module):
                return True
        frame = frame.f_back
    return False
