"""Nested arguments and results of operations.

PyTorch's own functions for this support more types, which operations do not take, and would use
most of the time of an operation here.
"""

import torch


def tree_leaves(tree):
    """Return the leaves of nested lists, tuples and dictionaries."""
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        return [tree]
    return [leaf for part in tree for leaf in tree_leaves(part)]


def tensors_of(tree):
    """Return the tensors in nested lists, tuples and dictionaries."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        return []
    return [t for part in tree for t in tensors_of(part)]


def tree_map(function, tree):
    """Return nested lists, tuples and dictionaries with a function's results in place of leaves."""
    if isinstance(tree, dict):
        return {key: tree_map(function, part) for key, part in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)([tree_map(function, part) for part in tree])
    return function(tree)
