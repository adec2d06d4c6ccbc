"""The leaves of nested arguments, with any PyTorch from 2.1 on."""

from torch.utils import _pytree

tree_map = _pytree.tree_map
try:
    tree_leaves = _pytree.tree_leaves
except AttributeError:  # before PyTorch 2.2

    def tree_leaves(tree):
        return _pytree.tree_flatten(tree)[0]
