"""Values: small tensors on the emulated GPU are computed by the CPU, in the same memory.

Kernels do nothing, but a script may read what they would have computed: indices, masks, counters,
lengths, the sizes of objects that processes exchange. So an operation on small tensors runs twice:
on the emulated GPU, which allocates what a GPU allocates, and on the CPU, whose results are put
into that memory. A storage of more than LARGE bytes has no values. What is read from one, or from
what depends on one, is an assumption: 1, true, or the largest size. Each line of the script that
read one is named at the end.
"""

import atexit
import contextlib
import functools
import threading
import time
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from emulated_gpu import sizes
from emulated_gpu.host import is_needless
from emulated_gpu.memory import (
    ASSUMED,
    COMPUTED,
    LARGE,
    NEVER,
    alias,
    finite,
    is_large,
    on_gpu,
    own_random_numbers,
    state_of,
    to_cpu,
)
from emulated_gpu.reads import line_at_work, read

aten = torch.ops.aten
# Operations that give a tensor no values, or change none.
VALUELESS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
VALUELESS |= {"record_stream", "resize_", "set_"}
# Operations that do not read the tensor that they change.
OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_"}
EITHER = ("bitwise_or", "logical_or")
RANDOM = torch.Tag.nondeterministic_seeded
START = threading.Thread._bootstrap_inner  # what runs in a new thread
PLAIN = (torch.Tensor, torch.nn.Parameter)

turns = {}  # "file:line" -> how often it has asked for any value of a mask without values


class Values(TorchDispatchMode):
    """The mode that is always on, in every thread; the script's own modes run before it."""

    supports_higher_order_operators = True  # such as flex_attention

    @classmethod
    def is_infra_mode(cls):
        return True  # it does not keep Dynamo from compiling

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return func(*args, **kwargs)
        if any(t not in PLAIN for t in types):
            # A tensor that consists of others calls operations on them. A fake one has no memory.
            wraps = any(hasattr(t, "__tensor_flatten__") for t in types)
            return NotImplemented if wraps else func(*args, **kwargs)
        if is_needless(func, args, kwargs):
            return None if not func._schema.returns else args[0]
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if func in sizes.SIZED or sizes.is_masked(func, args):
            return sizes.sized(func, args, kwargs, given)
        if func is aten._local_scalar_dense.default:
            return sizes.scalar(func, args[0])
        if func is aten.equal.default:
            return sizes.equal(func, args, kwargs, given)
        # Error codes of linear algebra are 0.
        with sizes.answers() if "linalg" in func._schema.name else contextlib.nullcontext():
            out = func(*args, **kwargs)
        if func is aten.lift_fresh.default:  # torch.tensor(…, device="cuda") has copied it
            out.untyped_storage().values = COMPUTED
        elif not func.is_view:  # which shares the memory that it views
            compute(func, args, kwargs, given, out)
        return out


def compute(func, args, kwargs, given, out):
    """Compute on the CPU what an operation should have put into small tensors on the GPU."""
    results = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
    on_card = [t for t in (*given, *results) if on_gpu(t)]
    name = func._schema.name.partition("::")[2]
    if not on_card or name in VALUELESS or any(type(t) not in PLAIN for t in results):
        return
    if name in ("_to_copy", "copy_") and results[0].device.type == "cpu":
        received(args[0] if name == "_to_copy" else args[1], results[0])
        return
    changed = [t for t in mutated(func, args, kwargs) if on_gpu(t) and not is_large(t)]
    fresh = [t for t in results if on_gpu(t) and state_of(t) is None]
    never = (
        name in ("isnan", "isinf") or name in EITHER and all(state_of(t) == NEVER for t in given)
    )
    if never:
        for t in fresh:
            t.untyped_storage().values = NEVER
    fresh = [t for t in fresh if not is_large(t)]
    if not changed and not fresh:
        return
    computed = False
    if "c10d" in func.namespace:
        computed = True  # NCCL has copied it
    elif func.namespace in ("aten", "prims", "torchvision") and not any(map(is_large, on_card)):
        computed = _on_cpu(func, args, kwargs, given, out)
    inputs = [t for t in (args[1:] if name in OVERWRITES else given) if isinstance(t, torch.Tensor)]
    unknown = (ASSUMED, NEVER)
    known = computed and not any(on_gpu(t) and state_of(t) in unknown for t in inputs)
    for t in fresh:
        if t.numel() and (not computed or name == "any" and not known):
            alias(t).fill_(0 if never else is_any(given) if name == "any" else 1)
    for t in (*changed, *fresh):
        t.untyped_storage().values = COMPUTED if known else NEVER if never else ASSUMED
        if not known and t.is_floating_point():
            finite(t)


def is_any(given):
    """Return whether any value of a mask without values is true: in turn, so that loops end.

    None is where a number is not one, or infinite.
    """
    line = line_at_work()
    turns[line] = turns.get(line, 0) + 1
    return turns[line] % 2 if given and state_of(given[0]) != NEVER else 0


def mutated(func, args, kwargs):
    """Return the tensors that an operation writes into."""
    schema = func._schema.arguments
    named = [
        (a, kwargs.get(a.name, args[i] if i < len(args) else None)) for i, a in enumerate(schema)
    ]
    written = [x for a, x in named if a.alias_info is not None and a.alias_info.is_write]
    return [t for t in tree_leaves(written) if isinstance(t, torch.Tensor)]


def _on_cpu(func, args, kwargs, given, out):
    """Run an operation on the same memory; return whether the CPU can."""
    if sum(t.numel() * t.element_size() for t in given) > LARGE:
        return False
    random = own_random_numbers() if RANDOM in func.tags else contextlib.nullcontext()
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    try:
        with random:
            got = func(*tree_map(to_cpu, args), **tree_map(to_cpu, kwargs))
        for a, b in zip(tree_leaves(out), tree_leaves(got)):
            if isinstance(a, torch.Tensor) and on_gpu(a):
                same = alias(a)
                if same.data_ptr() != b.data_ptr():
                    same.copy_(b)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError, AttributeError):
        return False
    return True


def received(source, copy):
    """Note that the host has got a tensor; where it was large, it is 1 everywhere."""
    if not on_gpu(source):
        return
    read(source, "a tensor")
    if is_large(source) and copy.numel() * copy.element_size() <= 64 * LARGE:
        copy.fill_(1)


def begin():
    """Turn the mode on, in this thread and in those that will be started."""
    atexit.register(end)

    def bootstrap(thread):
        with Values():
            START(thread)

    threading.Thread._bootstrap_inner = bootstrap
    Values().__enter__()


def end():
    """Let the threads of the backward pass drop what they hold of the mode.

    They need Python for that, and would end the program if Python ended first. Each handles one
    pass after the other, so all is dropped when it has handled a last one, from a thread without
    the mode.
    """

    def last():
        for device in range(torch.cuda.device_count()):
            one = torch.ones((), device=f"cuda:{device}", requires_grad=True)
            (one * 1).backward()

    names = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
    if any(name.startswith("pt_autograd") for name in names):
        thread = threading.Thread(target=last)
        thread._bootstrap_inner = functools.partial(START, thread)
        thread.start()
        thread.join()
        time.sleep(0.1)  # and the last one may need Python, too
