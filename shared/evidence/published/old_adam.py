"""Adam as it was when figures were published."""

import contextlib

import torch

from shared.memory.torch_private import wrapped


@contextlib.contextmanager
def adam_of_2023():
    """Make Adam allocate one more temporary as large as all weights, while active.

    Until July 2023 it added epsilon to a copy: https://github.com/pytorch/pytorch/pull/104780
    """
    copies = []

    def add(original, tensors, other, **options):
        if other == 1e-8:  # epsilon
            copies.append(torch._foreach_add(tensors, other))
        return original(tensors, other, **options)

    def divide(original, *args, **options):
        original(*args, **options)
        copies.clear()

    with wrapped(torch, "_foreach_add_", add), wrapped(torch, "_foreach_addcdiv_", divide):
        yield
