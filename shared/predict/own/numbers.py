"""Which tensors have numbers, and what stands for those that do not.

Tensors on the simulated GPU have none. Those on the host have, so that data sets, tokenizers and
schedules compute as they do; but for weights, and what is large.
"""

import sys

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from shared.predict import gpu
from shared.predict.own.cuda import translated

LARGE = 64 * 2**20  # bytes; what the host makes of so many has no numbers
aten = torch.ops.aten
EMPTY = {aten.empty.memory_format, aten.empty_strided.default}
# In place of what its size depends on: all there could be.
CHOICES = "how many there are depends on numbers; as many as there can be stand for them"


class Mode(gpu.Mode):
    """Makes tensors without memory, but on the host; and says what stands for their numbers."""

    def __init__(self, note):
        """Tells note(text, own) what is not known; own if it matters only to the script itself."""
        super().__init__(allow_non_fake_inputs=True)
        self._note = note

    def _read(self, text):
        self._note(text, own=True)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # In the backward pass nothing else translates.
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
        """Returns (the result,) of an operation that needs numbers, None of any other."""
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
        """Returns what stands for the number of a tensor, and says so if the script reads it."""
        if tensor.dtype == torch.bool:
            self._read("decides by a number that a simulation does not have; False stands for it")
            return False
        found = 1.0 if tensor.is_floating_point() else 1
        self._read(f"reads a number that a simulation does not have; {found} stands for it")
        return found

    def array(self, tensor):
        """Returns what stands for the numbers of a tensor, an array."""
        if tensor.constant is not None:
            return tensor.constant.numpy()
        self._read("reads numbers that a simulation does not have; ones stand for them")
        dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
        kind = np.dtype(str(dtype).removeprefix("torch."))
        return np.zeros(tensor.shape, kind) if dtype == torch.bool else np.ones(tensor.shape, kind)


def _on_host(leaves):
    return all(leaf.type == "cpu" for leaf in leaves if isinstance(leaf, torch.device))


def _building():
    """Tells whether a module is being made, which is about to fill what is empty."""
    frame = sys._getframe(2)
    while frame:
        if frame.f_code.co_name == "__init__":
            if isinstance(frame.f_locals.get("self"), torch.nn.Module):
                return True
        frame = frame.f_back
    return False
