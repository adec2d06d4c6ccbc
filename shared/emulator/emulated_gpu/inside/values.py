"""Values: small tensors on the emulated GPU are computed by the CPU, in the same memory.

Kernels do nothing, but a script may read what they would have computed: indices, masks, counters,
lengths, the sizes of objects that processes exchange. So an operation on small tensors runs twice:
on the emulated GPU, which allocates what a GPU allocates, and on the CPU, whose results are put
into that memory. A tensor of more than LARGE bytes has no values. A value read from such a tensor,
or from one that depends on it, is an assumption: 1, true, or the largest size. The report at the
end names each line of the script that has read an assumption.

Convolutions and products of matrices of assumed values are not computed: they would take nearly
all of the time, and their values mean nothing. All else is computed: sizes, indices and conditions
have to fit together.
"""

import contextlib
import functools
import math
import re

import torch

from emulated_gpu.inside import sizes
from emulated_gpu.inside.memory import (
    LARGE,
    State,
    alias,
    finite,
    has_values,
    is_large,
    mark,
    on_gpu,
    own_random_numbers,
    start,
    state_of,
    to_cpu,
)
from emulated_gpu.inside.reads import place_at_work, read
from emulated_gpu.inside.trees import tensors_of, tree_leaves, tree_map

aten = torch.ops.aten
ON_CPU = ("aten", "torchvision")  # whose operations the CPU has, too
# Operations that give a tensor no values.
VALUELESS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# Operations that do not read the tensor that they change.
OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_"}
COPIES = ("_to_copy", "copy_")
# Operations that join masks, or the elements of one: where nothing is true, their result is not.
JOIN = ("bitwise_or", "logical_or", "bitwise_and", "logical_and", "any", "all")
# Operations that read each value many times: convolutions, products of matrices.
PRODUCTS = re.compile(r"conv|(^|_|add|b)mm(_|$)|attention|rnn|linalg")
# Operations that count what is true in a mask.
COUNT = ("sum", "count_nonzero", "any")
# Operations that count, or add up, into a tensor that had zeros before.
ADD_UP = {"scatter_add_", "scatter_reduce_", "index_add_", "index_reduce_"}
RANDOM = torch.Tag.nondeterministic_seeded
PLAIN = (torch.Tensor, torch.nn.Parameter)

turns = {}  # place_at_work() -> how often it has called any() on masks without known values


def handle(func, run, args, kwargs):
    """Run an operation; run() is PyTorch's own kernel for CUDA."""
    if func._schema.name == "aten::_linalg_check_errors":
        return None  # there are none
    operands = tensors_of((args, kwargs))
    if any(type(t) not in PLAIN for t in operands):
        return run(*args, **kwargs)
    if func is aten._local_scalar_dense.default:
        return sizes.scalar(run, args[0])
    if func is aten.equal.default:
        return sizes.equal(func, run, args, kwargs, operands)
    if sizes.is_sized(func, args):
        out = sizes.sized(func, run, args, kwargs, operands)
    else:
        with numbers_read(func, args):
            out = run(*args, **kwargs)
    if func is aten.lift_fresh.default:  # torch.tensor(…, device="cuda") has copied it
        mark(out, State.COMPUTED)
    else:
        compute(func, args, kwargs, operands, out)
    return out


def numbers_read(func, args):
    """Return a context in which an operation reads plausible numbers from the GPU."""
    if "linalg" in func._schema.name:  # error codes are 0
        return sizes.answers()
    if func is aten._to_sparse.sparse_dim:
        slices = math.prod(args[0].shape[: args[1]])
        return sizes.at_most(slices, aten.unique_dim.default)
    if func is aten._nested_tensor_from_mask.default:
        return sizes.at_most(args[0].shape[1:], aten._to_copy.default)  # of the parts' sizes
    return contextlib.nullcontext()


def compute(func, args, kwargs, operands, out):
    """Compute on the CPU the values of small tensors that an operation writes on the GPU.

    Where the CPU cannot, or an operand is an assumption, the results are assumptions, too.
    """
    results = tensors_of(out)
    on_card = [t for t in (*operands, *results) if on_gpu(t)]
    name = base_name(func)
    if not on_card or any(type(t) not in PLAIN for t in results):
        return
    if name in VALUELESS:
        for t in filter(on_gpu, results):
            mark(t, State.UNKNOWN)
        return
    if name in COPIES and results[0].device.type == "cpu":
        received(args[0] if name == "_to_copy" else args[1], results[0])
        return
    assumption = assumed_state(func, args, operands)
    new = new_tensors(operands, results)
    # A large mask of NaN has no values, but what a script does with it is known.
    large = State.NEVER_TRUE if assumption is State.NEVER_TRUE else State.UNKNOWN
    targets = written(func, args, kwargs, operands)
    # Of a large target, only what was said about it is forgotten: small views may have values.
    is_said = [t for t in targets if is_large(t) and is_assumed(t)]
    for t in (*filter(is_large, new), *is_said):
        mark(t, large)
    new = [t for t in new if not is_large(t)]
    changed = [t for t in targets if on_gpu(t) and not is_large(t)]
    if not changed and not new:
        return
    # A result is as good as what it was computed from; the old values of a target do not matter.
    sources = tensors_of(args[1:]) if name in OVERWRITES else operands
    assumes = any(map(is_assumed, sources))
    is_computed = func.namespace == "c10d"  # NCCL has copied it
    if func.namespace in ON_CPU and not any(map(is_large, on_card)):
        is_needless = assumes and PRODUCTS.search(name)
        # A tensor that is only written need not have values: an index may overwrite all of them.
        overwritten = {id(t) for t in targets}
        is_possible = all(has_values(t) for t in operands if id(t) not in overwritten)
        if is_possible and not is_needless:
            is_computed = on_cpu(func, args, kwargs, operands, out)
    is_known = is_computed and not assumes
    if not is_computed:
        fill(new, assumed_number(name, operands, new, assumption))
    if func is aten.any.default and not is_known:
        decide(operands[0], *new)
    if not is_computed and name in ADD_UP:
        fill(changed, 1)
    mark_states((*changed, *new), State.COMPUTED if is_known else assumption)


def assume(arguments):
    """Put 1 into small tensors that a kernel has written of which PyTorch does not know."""
    small = [t for t in tensors_of(arguments) if on_gpu(t) and has_values(t)]
    fill(small, 1)
    mark_states(small, State.ASSUMED)


def mark_states(tensors, state):
    """Set the State of small tensors, and leave no NaN in those that nothing has computed.

    Scripts end at NaN and infinity, which are right only where a GPU would have computed them.
    """
    for t in tensors:
        mark(t, state)
        if state is not State.COMPUTED and t.is_floating_point():
            finite(t)


@functools.cache
def base_name(func):
    """Return the name of an operation without namespace and overload, such as "add_"."""
    return func._schema.name.partition("::")[2]


def new_tensors(operands, results):
    """Return the results on the GPU that do not lie in the memory of an operand."""
    old = {start(t) for t in operands if on_gpu(t)}
    return [t for t in results if on_gpu(t) and start(t) not in old]


def assumed_state(func, args, operands):
    """Return the State of a result that is an assumption: NEVER_TRUE or ASSUMED."""
    # isinf() has no kernel of its own: it compares absolute values with infinity.
    is_infinity = func is aten.eq.Scalar and args[1] == math.inf
    is_joined = base_name(func).rstrip("_") in JOIN
    if is_joined and all(state_of(t) is State.NEVER_TRUE for t in operands):
        return State.NEVER_TRUE
    return State.NEVER_TRUE if func is aten.isnan.default or is_infinity else State.ASSUMED


def is_assumed(t):
    """Return whether a tensor has placeholders in place of computed values."""
    return on_gpu(t) and state_of(t) not in (State.COMPUTED, State.UNKNOWN)


def assumed_number(name, operands, results, assumption):
    """Return the placeholder for the values of an operation's result.

    It is 0 in a mask of NaN or infinity; all else is 1, or true, and the sum of a mask fits.
    """
    if assumption is State.NEVER_TRUE:
        return 0
    if name not in COUNT or not operands:
        return 1
    if state_of(operands[0]) is State.NEVER_TRUE:
        return 0
    is_sum = name != "any" and operands[0].dtype == torch.bool and results and results[0].numel()
    return operands[0].numel() // results[0].numel() if is_sum else 1


def fill(tensors, number):
    """Put a number into all elements of small tensors."""
    for t in tensors:
        if t.numel():
            alias(t).fill_(number)


def decide(mask, result):
    """Let any() of masks without known values alternate, so that a loop that waits for it ends.

    The mask is made so, since what is asked next about it has to fit: how many are true, which
    ones, and any() again. For masks of NaN or infinity the result stays 0.
    """
    if state_of(mask) in (State.NEVER_TRUE, State.DECIDED):
        return
    place = place_at_work()
    turns[place] = turns.get(place, 0) + 1
    is_other = turns[place] % 2 == 0
    is_true = bool(alias(result)) != is_other
    fill([result], is_true)
    if mask.dtype == torch.bool:
        if not is_large(mask) and (is_other or not has_values(mask)):
            fill([mask], is_true)
        mark(mask, State.DECIDED if is_true or not is_large(mask) else State.NEVER_TRUE)


def written(func, args, kwargs, operands):
    """Return the tensors that an operation writes into."""
    if func.namespace == "c10d":  # their schemas do not say what they change
        return operands
    tensors = []
    for i, name in written_arguments(func):
        positional = args[i] if i < len(args) else None
        tensors += tensors_of(kwargs.get(name, positional))
    return tensors


@functools.cache
def written_arguments(func):
    """Return (place, name) of the arguments that an operation's schema says it writes into."""
    arguments = enumerate(func._schema.arguments)
    return [(i, a.name) for i, a in arguments if a.alias_info and a.alias_info.is_write]


def on_cpu(func, args, kwargs, operands, out):
    """Run an operation on the CPU, on the memory of the GPU's tensors; return whether it can.

    Results that the CPU puts elsewhere are copied to where the GPU's are.
    """
    if sum(t.numel() * t.element_size() for t in operands) > LARGE:
        return False  # many small tensors take time, too
    random = own_random_numbers() if RANDOM in func.tags else contextlib.nullcontext()
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}  # it is one for CUDA
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    try:
        with random:
            result = func(*tree_map(to_cpu, args), **tree_map(to_cpu, kwargs))
        for target, source in zip(tree_leaves(out), tree_leaves(result)):
            if not isinstance(target, torch.Tensor) or not on_gpu(target):
                continue
            if target.shape != source.shape:
                # A result that was not requested may be empty on only one of the two devices.
                if target.numel() and source.numel():
                    return False  # the largest size, not the one of these values
                continue
            values = alias(target)
            if values.data_ptr() != source.data_ptr():
                values.copy_(source)
    # The CPU lacks some operations and types, each with an error of another kind.
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError, AttributeError):
        return False
    return True


def received(source, copy):
    """Note that the host has read a tensor; fill the host's copy of a large tensor with 1.

    Copies of very large tensors stay untouched, so that they take no memory of the host.
    """
    if not on_gpu(source):
        return
    read(source, "a tensor")
    part = sizes.bound(aten._to_copy.default)
    if part and state_of(source) is not State.COMPUTED:
        copy.copy_(torch.tensor(part))
    elif is_large(source) and copy.numel() * copy.element_size() <= 64 * LARGE:
        copy.fill_(1)
