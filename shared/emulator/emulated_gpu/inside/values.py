"""Values: small tensors on the emulated GPU are computed by the CPU, in the same memory.

Kernels do nothing, but a script may read what they would have computed: indices, masks, counters,
lengths, the sizes of objects that processes exchange. So an operation on small tensors runs twice:
on the emulated GPU, which allocates what a GPU allocates, and on the CPU, whose results are put
into that memory. A storage of more than LARGE bytes has no values. What is read from one, or from
what depends on one, is an assumption: 1, true, or the largest size. Each line of the script that
read one is named at the end.
"""

import contextlib
import functools
import re
import warnings

import torch

from emulated_gpu.inside import sizes
from emulated_gpu.inside.host import is_needless
from emulated_gpu.inside.memory import (
    ASSUMED,
    COMPUTED,
    LARGE,
    NEVER,
    alias,
    finite,
    is_large,
    mark,
    on_gpu,
    own_random_numbers,
    start,
    state_of,
    to_cpu,
)
from emulated_gpu.inside.reads import line_at_work, read
from emulated_gpu.inside.trees import tree_leaves, tree_map

aten = torch.ops.aten
# Operations that give a tensor no values, or change none.
VALUELESS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
CHANGE_NOTHING = {"record_stream", "resize_", "set_"}
# pow.Scalar calls this with a number that is on the GPU, which Python cannot be given.
LEFT_OUT = ("aten::pow.Tensor_Tensor_out",)
# Operations that do not read the tensor that they change.
OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_"}
READING = (aten._local_scalar_dense.default, aten.equal.default)
EITHER = ("bitwise_or", "logical_or")
# Operations that count, or add up, into a tensor that had zeros before.
ADD_UP = {"scatter_add_", "scatter_reduce_", "index_add_", "index_reduce_"}
RANDOM = torch.Tag.nondeterministic_seeded
NAMESPACES = ("aten", "c10d")
TENSOR, NUMBER = ("Tensor", "Optional[Tensor]"), (bool, int, float, complex)
# What optimizers do in place.
UPDATES = re.compile(
    r"_foreach_\w+_(\.|$)|_fused_\w+_(\.|$)|::(add|mul|lerp|addcmul|addcdiv)_(\.|$)"
)
PLAIN = (torch.Tensor, torch.nn.Parameter)

# Objects that are told of every operation, the last of them: begins(func) returns a token, then
# ends(token, func, arguments, keyword arguments, results).
watchers = []
_libraries = {}  # namespace -> torch.library.Library, which must stay
turns = {}  # "file:line" -> how often it has asked for any value of a mask without values


def handle(func, run, args, kwargs):
    """Run an operation; run() is PyTorch's own kernel for CUDA."""
    if func._schema.name == "aten::_linalg_check_errors":
        return None  # there are none
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if any(type(t) not in PLAIN for t in given):
        return run(*args, **kwargs)
    if func in sizes.SIZED or sizes.is_masked(func, args):
        return sizes.sized(func, run, args, kwargs, given)
    if func is aten._local_scalar_dense.default:
        return sizes.scalar(run, args[0])
    if func is aten.equal.default:
        return sizes.equal(func, run, args, kwargs, given)
    # Error codes of linear algebra are 0.
    with sizes.answers() if "linalg" in func._schema.name else contextlib.nullcontext():
        out = run(*args, **kwargs)
    if func is aten.lift_fresh.default:  # torch.tensor(…, device="cuda") has copied it
        mark(out, COMPUTED)
    else:
        compute(func, args, kwargs, given, out)
    return out


def compute(func, args, kwargs, given, out):
    """Compute on the CPU what an operation should have put into small tensors on the GPU."""
    results = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
    on_card = [t for t in (*given, *results) if on_gpu(t)]
    name = func._schema.name.partition("::")[2]
    if not on_card or any(type(t) not in PLAIN for t in results):
        return
    if name in VALUELESS:
        for t in filter(on_gpu, results):
            mark(t, None)
        return
    if name in ("_to_copy", "copy_") and results[0].device.type == "cpu":
        received(args[0] if name == "_to_copy" else args[1], results[0])
        return
    collective = func.namespace == "c10d"  # their schemas do not say what they change
    changed = given if collective else mutated(func, args, kwargs)
    changed = [t for t in changed if on_gpu(t) and not is_large(t)]
    old = {start(t) for t in given if on_gpu(t)}
    fresh = [t for t in results if on_gpu(t) and start(t) not in old]
    never = (
        name in ("isnan", "isinf") or name in EITHER and all(state_of(t) == NEVER for t in given)
    )
    for t in filter(is_large, fresh):
        mark(t, NEVER if never else None)
    fresh = [t for t in fresh if not is_large(t)]
    if not changed and not fresh:
        return
    computed = collective  # NCCL has copied it
    if func.namespace == "aten" and not any(map(is_large, on_card)):
        computed = _on_cpu(func, args, kwargs, given, out)
    inputs = [t for t in (args[1:] if name in OVERWRITES else given) if isinstance(t, torch.Tensor)]
    unknown = (ASSUMED, NEVER)
    known = computed and not any(on_gpu(t) and state_of(t) in unknown for t in inputs)
    for t in fresh:
        if t.numel() and (not computed or name == "any" and not known):
            alias(t).fill_(0 if never else is_any(given) if name == "any" else 1)
    if not computed and name in ADD_UP:
        for t in filter(torch.Tensor.numel, changed):
            alias(t).fill_(1)
    for t in (*changed, *fresh):
        mark(t, COMPUTED if known else NEVER if never else ASSUMED)
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


def end():
    """Leave the operations to PyTorch alone, until the next begin(), but for those that read.

    Else these would find in memory what was left there: any size, up to one that never ends.
    """
    _leave()
    if hasattr(torch.library, "get_kernel"):
        reading = {func.name() for func in (*sizes.SIZED, *sizes.MASKED, *READING)}
        for name in reading.intersection(_registered("CUDA")):
            _stand_around(name, "CUDA", sizes.as_before)
        _stand_around("aten::_coalesce", "SparseCUDA", sizes.as_before)
        _stand_around("aten::_linalg_check_errors", "CUDA", lambda *_: None)


def _registered(key):
    return torch._C._dispatch_get_registrations_for_dispatch_key(key)


def _leave():
    while _libraries:
        _libraries.popitem()[1]._destroy()


def begin():
    """Stand around every kernel for CUDA, and around some for the host.

    Not in a mode, which PyTorch would see: formulas of the backward pass then take more memory.
    """
    _leave()
    with warnings.catch_warnings():  # PyTorch warns that kernels are replaced: intended
        warnings.filterwarnings("ignore", "(?s).*overriding a previously registered kernel")
        if not hasattr(torch.library, "get_kernel"):  # before PyTorch 2.9: there are no values
            for func in sizes.SIZED:
                sizes.find_ones(func, _library(func.namespace))
            return
        for name in [
            *_registered("CUDA"),
            "aten::copy_",
            "aten::lift_fresh",
            "aten::_linalg_check_errors",
        ]:
            _stand_around(name, "CUDA", handle)
        _stand_around("aten::_coalesce", "SparseCUDA", handle)
        on_host = _registered("CPU")
        plain = ["aten::copy_", "aten::zero_", "aten::normal_", "aten::uniform_"]
        for name in [*plain, *(n for n in on_host if UPDATES.search(n))]:
            _stand_around(name, "CPU", on_the_host)


def on_the_host(func, run, args, kwargs):
    """Run an operation on the host, unless it only changes large weights."""
    if is_needless(func, args, kwargs):
        return args[0] if func._schema.returns else None
    return run(*args, **kwargs)


def with_tensors(args, places):
    """Return arguments with tensors for the numbers that stand where an operation wants some.

    PyTorch had made numbers of them for Python. Their type does not change that of the result.
    """
    if not any(isinstance(args[i], NUMBER) for i in places if i < len(args)):
        return args
    others = [t.dtype for t in args if isinstance(t, torch.Tensor)]
    args = list(args)
    for i in places:
        if i < len(args) and isinstance(args[i], NUMBER):
            number = torch.tensor(args[i])
            fits = [d for d in others if category(d) >= category(number.dtype)]
            args[i] = number.to(fits[0]) if fits else number  # 0xFFFF0000 becomes negative
    return args


def category(dtype):
    """Return the rank of a type among bool, integers, floating-point and complex numbers."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else dtype != torch.bool


def _library(namespace):
    if namespace not in _libraries:
        _libraries[namespace] = torch.library.Library(namespace, "IMPL")
    return _libraries[namespace]


def _stand_around(name, key, handler):
    namespace, _, full = name.partition("::")
    if namespace not in NAMESPACES or name in LEFT_OUT:
        return
    base, _, overload = full.partition(".")
    func = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    if func.is_view or base in CHANGE_NOTHING:
        return
    original = torch.library.get_kernel(func, key)

    places = [i for i, a in enumerate(func._schema.arguments) if str(a.type) in TENSOR]

    def kernel(keyset, *args, **kwargs):
        run = functools.partial(original.call_boxed, keyset)
        args = with_tensors(args, places)
        if not watchers:
            return handler(func, run, args, kwargs)
        token, out = watchers[-1].begins(func), None
        try:
            out = handler(func, run, args, kwargs)
        finally:
            watchers[-1].ends(token, func, args, kwargs, out)
        return out

    _library(namespace).impl(full, kernel, key, with_keyset=True)
