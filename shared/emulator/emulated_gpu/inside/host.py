"""Large weights on the host: they have no values, so nothing is drawn, copied or updated there.

Linux gives a page of memory to a process when it first writes there. So a model of many gigabytes
can be built on the host, filled from a file and updated, as long as no operation writes to its
large weights.
"""

import contextlib
import functools
import json
import os
import zipfile

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook as after_step
from torch.optim.optimizer import register_optimizer_step_pre_hook as before_step

from emulated_gpu.imports import replace_everywhere
from emulated_gpu.inside import library
from emulated_gpu.inside.memory import LARGE, extent, is_large
from emulated_gpu.inside.trees import tensors_of

# Bytes from which on a file of tensors is written without their values, and mapped, not read.
FILE = 64 * LARGE
# Bytes from which on a tensor is not filled with random numbers: it is a weight, no data set.
DRAWN = 16 * LARGE
# Names of types in a file of safetensors.
KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
KINDS |= {torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8"}
KINDS |= {torch.bool: "BOOL"}
RANDOM = ("normal_", "uniform_")
PLAIN = (torch.Tensor, torch.nn.Parameter)  # no subclass, which may have no memory
LINEAR = ("add_", "sub_", "mul_")  # of zeros they make zeros

_stepping = 0  # optimizers that are in step()


def begin():
    """Let initialization, copies and files skip large weights on the host: pages stay untouched."""
    for name in dir(torch.nn.init):
        function = getattr(torch.nn.init, name)
        if name.endswith("_") and not name.startswith("_") and callable(function):
            replace_everywhere(name, function, _unless_large(function))
    if not hasattr(torch.library, "get_kernel"):  # before PyTorch 2.9: no kernel is replaced
        for name in RANDOM:
            setattr(torch.Tensor, name, _unless_large(getattr(torch.Tensor, name), DRAWN))
        torch.Tensor.pin_memory = _pinned(torch.Tensor.pin_memory)
    torch.load = _mapped(torch.load)
    torch.save = _sparse(torch.save)
    before_step(functools.partial(_step, 1))
    after_step(functools.partial(_step, -1))


def _unless_large(function, least=0):
    """Return a function that fills a tensor on the host only if it is small, or below `least`."""

    @functools.wraps(function)
    def init(tensor, *args, **kwargs):
        if not _is_large_on_host(tensor) or extent(tensor) < least:
            return function(tensor, *args, **kwargs)
        if type(tensor) in PLAIN and tensor.is_contiguous():
            # torch.zeros() may have written there.
            library.give_back(tensor.data_ptr(), extent(tensor))
        return tensor

    return init


def _pinned(function):
    """Return Tensor.pin_memory() without the copy of untouched memory."""

    @functools.wraps(function)
    def pin_memory(tensor, *args, **kwargs):
        if is_untouched(tensor) and not args and not kwargs:
            return torch.empty_like(tensor, pin_memory=True)
        return function(tensor, *args, **kwargs)

    return pin_memory


def _mapped(function):
    """Return a torch.load that maps large files, so that unread values take no memory."""

    @functools.wraps(function)
    def load(file, *args, **kwargs):
        if isinstance(file, (str, os.PathLike)) and os.path.exists(file):
            if os.path.getsize(file) > FILE and zipfile.is_zipfile(file):
                # Older formats than zip files cannot be mapped:
                # https://docs.pytorch.org/docs/stable/generated/torch.load.html
                kwargs.setdefault("mmap", True)
        return function(file, *args, **kwargs)

    return load


def _sparse(function):
    """Return a torch.save that leaves holes in place of the values of large objects."""

    @functools.wraps(function)
    def save(obj, *args, **kwargs):
        large = sum(t.numel() * t.element_size() for t in tensors_of(obj)) > FILE
        with torch.serialization.skip_data() if large else contextlib.nullcontext():
            return function(obj, *args, **kwargs)

    return save


def write_safetensors(file, tensors, dtype):
    """Write a file of weights without values, which takes no room on the disk.

    https://huggingface.co/docs/safetensors/index#format

    Args:
        file: its path.
        tensors: {name: tensor}; those on the meta device are enough.
        dtype: of the floating-point ones in the file.
    """
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, t in tensors.items():
        kind = dtype if t.is_floating_point() else t.dtype
        start = end
        end += t.numel() * kind.itemsize
        header[name] = {"dtype": KINDS[kind], "shape": [*t.shape], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + end)  # zeros, in a hole of the file


def _step(change, *_):
    """Count optimizers in step(): a change of 1 or -1, for a hook."""
    global _stepping
    _stepping += change


def _is_large_on_host(t):
    return t.device.type == "cpu" and t.layout == torch.strided and is_large(t)


def is_untouched(t):
    """Return whether a large tensor on the host has never been written to: it has no pages."""
    return _is_large_on_host(t) and library.is_untouched(t.data_ptr(), extent(t))


def is_needless(func, args, kwargs):
    """Return whether an operation only writes zeros, random or unknown values to large tensors."""
    if not func._schema.is_mutable:
        return False
    target = args[0]
    name = func._schema.name.partition("::")[2]
    if name == "zero_":
        return is_untouched(target)
    if name in RANDOM:
        return _is_large_on_host(target) and extent(target) >= DRAWN
    if name == "copy_":
        # During step() also the optimizer's copies of weights, which are no Parameters.
        is_weight = isinstance(target, torch.nn.Parameter) or _stepping > 0
        return _is_large_on_host(target) and (is_weight or is_untouched(args[1]))
    tensors = tensors_of((args, kwargs))
    if name in LINEAR and len(tensors) > 1 and all(map(is_untouched, tensors)):
        return True
    if not _stepping:
        return False
    return all(t.device.type == "cpu" for t in tensors) and any(map(_is_large_on_host, tensors))
