"""The lines of a script that record a stream on a tensor: `Tensor.record_stream()`.

PyTorch's allocator keeps the memory of such a tensor, when it is freed, until the stream has done
all that it was given before. So memory depends on how far the host is ahead of the GPU.
"""

import functools

import torch

from emulated_gpu.inside import library, reads

OF_PYTORCH = "the autograd engine or a collective"  # which record streams without Python

_lines = {}  # "file:line" -> None, in order


def begin():
    """Note the lines from here on."""
    torch.Tensor.record_stream = _noted(torch.Tensor.record_stream)


def _noted(original):
    @functools.wraps(original)
    def record_stream(tensor, stream):
        # To find a line takes time, and a report has no more of them.
        if len(_lines) < reads.MOST:
            _lines.setdefault(reads.line_at_work())
        return original(tensor, stream)

    return record_stream


def kept_by():
    """Return the lines that made the allocator keep memory for other streams, or [OF_PYTORCH].

    It is [] where memory does not depend on the host's pace.
    """
    if not library.has_kept():
        return []
    lines = [line for line in _lines if line != "?"]
    return lines or [OF_PYTORCH]
