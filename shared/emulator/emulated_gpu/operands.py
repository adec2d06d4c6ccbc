"""The operands that a PyTorch operation reads and writes, by its schema; needs no emulated GPU."""

import functools
import re

# Operations that overwrite their argument without reading it.
ONLY_WRITE = re.compile(r"(_foreach_)?(zero|fill|copy|normal|uniform|random|bernoulli)_")
# These read only as much of their first operand as they return, or write only as much of it as
# they are given.
SOME = re.compile(r"embedding|index|index_select|gather|take|index_put_")


@functools.cache
def roles(func):
    """Return the roles of an operation's arguments, {name: "read", "written" or "both"}."""
    name = func._schema.name.partition("::")[2]
    found = {}
    for argument in func._schema.arguments:
        info = argument.alias_info
        found[argument.name] = "read"
        # Fused optimizers may divide gradients by a loss scale; hardly any script gives them one.
        if info and info.is_write and argument.name not in ("g", "grads"):
            is_first = len(found) == 1
            alone = argument.is_out or (is_first and ONLY_WRITE.fullmatch(name))
            found[argument.name] = "written" if alone else "both"
    return found


def touched(t):
    """Return the bytes of a tensor's elements; those repeated with stride 0 count once."""
    n = t.element_size()
    for length, stride in zip(t.shape, t.stride()):
        n *= length if stride or not length else 1
    return n
