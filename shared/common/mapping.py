"""Lets torch.load(mmap=True) map a file of weights that is larger than the computer's memory."""

import errno
import mmap
import os

import torch

from shared.common.errors import UserError


def mappable(path):
    """Makes sure that torch.load(path, mmap=True) can map a file, and returns its path.

    By default PyTorch maps a file so that its tensors can be written to without changing the file.
    Linux takes that for a promise of memory, and refuses it for a file larger than memory and swap.
    Such a file is mapped shared. Its pages are then read when they are used and dropped at any
    time, as before; but whoever wrote to one of its tensors would change the file, so nothing does:
    load_state_dict() copies them.

    Source: https://docs.kernel.org/mm/overcommit-accounting.html

    Raises:
        UserError: only a shared mapping is possible, which PyTorch opens for writing too, and the
            file is write-protected.
    """
    shared = _private_is_refused(path)
    if shared and not os.access(path, os.W_OK):
        raise UserError(
            f"{path} is larger than this computer's memory, and PyTorch maps such a file only if "
            "it may be written to; chmod u+w it"
        )
    torch.serialization.set_default_mmap_options(mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    return path


def _private_is_refused(path):
    with open(path, "rb") as file:
        try:
            mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE).close()
        except OSError as error:
            return error.errno == errno.ENOMEM
        except ValueError:  # it is empty; torch.load will say so
            pass
    return False
