"""A host that stays cheap: weights have no values, so nothing is drawn, copied or updated there.

Pages of the host's memory that nobody writes to take none. So a model of many gigabytes can be
built on the host, filled from a file and updated, as long as nobody touches its large weights.
"""

import contextlib
import ctypes
import functools
import json
import os
import zipfile

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook as after_step
from torch.optim.optimizer import register_optimizer_step_pre_hook as before_step

from emulated_gpu.inside.memory import LARGE, extent, is_large
from emulated_gpu.inside.trees import tree_leaves

# Bytes from which on a file of tensors is written without their values, and mapped, not read.
FILE = 64 * LARGE
# Bytes from which on a tensor is not filled with random numbers: no data set, but a weight.
DRAWN = 16 * LARGE
KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
KINDS |= {torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8"}
KINDS |= {torch.bool: "BOOL"}
RANDOM = ("normal_", "uniform_")
PLAIN = (torch.Tensor, torch.nn.Parameter)  # no subclass, which may have no memory
LINEAR = ("add_", "sub_", "mul_")  # of zeros they make zeros

_stepping = 0  # optimizers at work
_untouched = ctypes.CDLL(None).emulator_untouched
_untouched.argtypes, _untouched.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_bool
_forget = ctypes.CDLL(None).emulator_forget
_forget.argtypes, _forget.restype = (ctypes.c_void_p, ctypes.c_size_t), None


def begin():
    """Leave large weights on the host as they are: pages that nobody has touched."""
    for name in dir(torch.nn.init):
        function = getattr(torch.nn.init, name)
        if name.endswith("_") and not name.startswith("_") and callable(function):
            setattr(torch.nn.init, name, _unless_large(function))
    if not hasattr(torch.library, "get_kernel"):  # before PyTorch 2.9: no kernel is stood around
        for name in RANDOM:
            setattr(torch.Tensor, name, _unless_large(getattr(torch.Tensor, name), DRAWN))
        torch.Tensor.pin_memory = _pinned(torch.Tensor.pin_memory)
    torch.load = _mapped(torch.load)
    torch.save = _sparse(torch.save)
    before_step(functools.partial(_step, 1))
    after_step(functools.partial(_step, -1))


def _unless_large(function, least=0):
    @functools.wraps(function)
    def init(tensor, *args, **kwargs):
        if not _is_large_on_host(tensor) or extent(tensor) < least:
            return function(tensor, *args, **kwargs)
        if type(tensor) in PLAIN and tensor.is_contiguous():
            _forget(tensor.data_ptr(), extent(tensor))  # torch.zeros() may have written there
        return tensor

    return init


def _pinned(function):
    @functools.wraps(function)
    def pin_memory(tensor, *args, **kwargs):
        if is_untouched(tensor) and not args and not kwargs:
            return torch.empty_like(tensor, pin_memory=True)
        return function(tensor, *args, **kwargs)

    return pin_memory


def _mapped(function):
    @functools.wraps(function)
    def load(file, *args, **kwargs):
        if isinstance(file, (str, os.PathLike)) and os.path.exists(file):
            if os.path.getsize(file) > FILE and zipfile.is_zipfile(file):
                kwargs.setdefault("mmap", True)
        return function(file, *args, **kwargs)

    return load


def _sparse(function):
    @functools.wraps(function)
    def save(obj, *args, **kwargs):
        tensors = (t for t in tree_leaves(obj) if isinstance(t, torch.Tensor))
        large = sum(t.numel() * t.element_size() for t in tensors) > FILE
        with torch.serialization.skip_data() if large else contextlib.nullcontext():
            return function(obj, *args, **kwargs)

    return save


def write_safetensors(file, state, dtype):
    """Write tensors, which may be on the meta device, without values; floating-point ones as dtype.

    The file takes no room on the disk: https://huggingface.co/docs/safetensors/index#format
    """
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, t in state.items():
        kind = dtype if t.is_floating_point() else t.dtype
        size = t.numel() * kind.itemsize
        its = {"dtype": KINDS[kind], "shape": [*t.shape], "data_offsets": [end, end + size]}
        header[name], end = its, end + size
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + end)


def _step(change, *_):
    global _stepping
    _stepping += change


def _is_large_on_host(t):
    return t.device.type == "cpu" and t.layout == torch.strided and is_large(t)


def is_untouched(t):
    """Return whether nobody has ever written to a large tensor of the host: it has no pages."""
    return _is_large_on_host(t) and _untouched(t.data_ptr(), extent(t))


def is_needless(func, args, kwargs):
    """Return whether an operation only writes zeros, random or unknown values to large tensors."""
    if not func._schema.is_mutable:
        return False
    to, name = args[0], func._schema.name.partition("::")[2]
    if name == "zero_":
        return is_untouched(to)
    if name in RANDOM:
        return _is_large_on_host(to) and extent(to) >= DRAWN
    if name == "copy_":
        weight = isinstance(to, torch.nn.Parameter) or _stepping
        return _is_large_on_host(to) and (bool(weight) or is_untouched(args[1]))
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if name in LINEAR and len(tensors) > 1 and all(map(is_untouched, tensors)):
        return True
    if not _stepping:
        return False
    return all(t.device.type == "cpu" for t in tensors) and any(map(_is_large_on_host, tensors))
