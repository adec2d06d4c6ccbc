"""bf16 on processors that cannot multiply it: computed in fp32, which is 10 to 30 times faster.

PyTorch's own bf16 products are slow there. The same product of copies in fp32, rounded to bf16, is
fast and as exact: both add up in fp32 and round once, at the end.
"""

import warnings

import torch

from shared.memory.torch_private import cpu_multiplies_bf16

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
# Which results of attention stay in fp32: the logarithms of sums that the backward pass needs.
STAY = {ATTENTION: (1,), f"{ATTENTION}_backward": ()}
NOTE = "this CPU has no bf16 instructions: bf16 products are computed in fp32 and rounded"

_registered = []  # libraries are kept here, because what they register is removed with them


def speed_up():
    """Lets a CPU without bf16 instructions compute products and attention of bf16 in fp32.

    The copies in fp32 live inside the operations, as other temporary memory of kernels does: a
    ledger counts the same bytes as on any other CPU. Nothing changes for other types, on other
    devices, and on a CPU that has the instructions.

    Returns:
        whether this CPU has none.
    """
    if cpu_multiplies_bf16():
        return False
    if not _registered:
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():  # PyTorch warns that kernels are replaced, as intended
            warnings.filterwarnings(
                "ignore", message=".*[Oo]verriding a previously registered kernel"
            )
            for name in PRODUCTS:
                library.impl(name, _in_fp32(name, ()), "CPU", with_keyset=True)
            for name, stay in STAY.items():
                library.impl(name, _in_fp32(name, stay), "CPU", with_keyset=True)
        _registered.append(library)
    return True


def _in_fp32(name, stay):
    """Returns a kernel for an operation: PyTorch's, but in fp32 for tensors in bf16.

    Args:
        stay: numbers of the results that are in fp32 anyway.
    """
    operation = getattr(torch.ops.aten, name).default
    original = torch.library.get_kernel(f"aten::{name}", "CPU")

    def kernel(keyset, *args, **kwargs):
        if not any(_is_bf16(value) for value in args):
            return original.call_boxed(keyset, *args, **kwargs)
        options = {key: _up(value) for key, value in kwargs.items()}
        out = operation(*map(_up, args), **options)
        if isinstance(out, torch.Tensor):
            return out.bfloat16()
        return tuple(t if i in stay else t.bfloat16() for i, t in enumerate(out))

    return kernel


def _is_bf16(value):
    return isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16


def _up(value):
    return value.float() if _is_bf16(value) else value
