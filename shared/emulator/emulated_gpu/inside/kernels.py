"""The kernels of PyTorch that the emulator replaces: those for CUDA, and some for the host.

A replacement runs the original, which allocates, launches kernels that do nothing, and returns.
"""

import re
import traceback
import warnings

import torch
from torch.utils._python_dispatch import _disable_current_modes

from emulated_gpu.inside import library, reads, sizes, values, work, write_failure
from emulated_gpu.inside.counts import NMS_COUNT
from emulated_gpu.inside.host import is_needless

aten = torch.ops.aten
NAMESPACES = ("aten", "c10d")
# Operations without values to compute.
CHANGE_NOTHING = {"record_stream", "resize_", "set_"}
# pow.Scalar calls this with a number that is on the GPU, which Python cannot be given.
LEFT_OUT = ("aten::pow.Tensor_Tensor_out",)
# Operations that have no kernel of CUDA's own, but one for all devices.
WITHOUT_KERNEL = ("aten::copy_", "aten::lift_fresh", "aten::_linalg_check_errors")
NMS = "torchvision::nms"
STORE = re.compile(r"\.(?:store|atomic_\w+)\(\s*(\w+)")  # to an argument, in a kernel of Triton
TENSOR = ("Tensor", "Optional[Tensor]")  # types of arguments in schemas
NUMBER = (bool, int, float, complex)
DEEP = 20  # kernels that call each other; PyTorch's are five at most
# Operations in place, by which optimizers update weights; those of an offloaded model on the host.
UPDATES = re.compile(
    r"_foreach_\w+_(\.|$)|_fused_\w+_(\.|$)|::(add|mul|lerp|addcmul|addcdiv)_(\.|$)"
)

watchers = []  # see process.watching()
_libraries = {}  # namespace -> torch.library.Library, kept alive: a freed one removes its kernels


def begin():
    """Replace every kernel for CUDA by one that also computes values, and some for the host.

    A TorchDispatchMode would be simpler, but under one PyTorch's formulas of the backward pass take
    more memory.
    """
    with warnings.catch_warnings():  # PyTorch warns of each kernel that is replaced
        warnings.filterwarnings("ignore", "(?s).*overriding a previously registered kernel")
        if not hasattr(torch.library, "get_kernel"):  # before PyTorch 2.9: there are no values
            library.let_be_true()
            for func in (*sizes.SIZED, aten.bincount.default):
                if func not in sizes.SPARSE:
                    sizes.find_most(func, _library(func.namespace))
            return
        for name in (*_registered("CUDA"), *WITHOUT_KERNEL):
            _replace(name, "CUDA", values.handle)
        for func in sizes.SPARSE:
            _replace(func.name(), "SparseCUDA", values.handle)
        on_host = ["aten::copy_", "aten::zero_", "aten::normal_", "aten::uniform_"]
        on_host += [name for name in _registered("CPU") if UPDATES.search(name)]
        for name in on_host:
            _replace(name, "CPU", run_on_host)


def begin_nms(torchvision):
    """Replace also torchvision's kernel, which has just been imported, if it is there."""
    if hasattr(torch.library, "get_kernel") and NMS in _registered("CUDA"):  # as in begin()
        sizes.SIZED[torch.ops.torchvision.nms.default] = NMS_COUNT
        _replace(NMS, "CUDA", values.handle)


def begin_triton(jit):
    """Let be assumptions what Triton's kernels write: the arguments that their sources name."""
    original = jit.JITFunction.run

    def run(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        named = {**dict(zip(self.arg_names, args)), **kwargs}
        values.assume([named.get(name) for name in STORE.findall(self.src)])
        return out

    jit.JITFunction.run = run


def _registered(key):
    """Return the names of the operations that have a kernel for a dispatch key."""
    return torch._C._dispatch_get_registrations_for_dispatch_key(key)


def run_on_host(func, run, args, kwargs):
    """Run an operation on the host, unless it only changes large weights."""
    if is_needless(func, args, kwargs):
        return args[0] if func._schema.returns else None
    return run(*args, **kwargs)


def with_tensors(args, places):
    """Return arguments with tensors in place of numbers, at the places where the schema has some.

    PyTorch gives a kernel in Python a number for a tensor that was made of one, as in `x + 1`. Its
    type does not change that of the result.
    """
    if not any(isinstance(args[i], NUMBER) for i in places if i < len(args)):
        return args
    dtypes = [t.dtype for t in args if isinstance(t, torch.Tensor)]
    args = list(args)
    for i in places:
        if i < len(args) and isinstance(args[i], NUMBER):
            number = torch.tensor(args[i])
            fitting = [d for d in dtypes if category(d) >= category(number.dtype)]
            args[i] = number.to(fitting[0]) if fitting else number  # 0xFFFF0000 becomes negative
    return args


def category(dtype):
    """Return the rank of a type in PyTorch's promotion: bool, integer, floating-point, complex.

    https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype == torch.bool else 1


def is_ours(error, kernel, run):
    """Return whether an error came up in the emulator, or in kernels that call themselves.

    Args:
        error: the exception, at the edge of a replaced kernel.
        kernel, run: the code of all replacements, and that which calls PyTorch's own kernel.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    # A recursion of the script's own may end anywhere, also in ctypes, which has another error.
    is_anyones = run in codes or "recursion depth" in str(error)
    return not is_anyones or codes.count(kernel) > DEEP


def _library(namespace):
    if namespace not in _libraries:
        _libraries[namespace] = torch.library.Library(namespace, "IMPL")
    return _libraries[namespace]


def _replace(name, key, handler):
    """Replace a kernel by handler(func, run, args, kwargs), whose run() is the kernel."""
    namespace, _, full = name.partition("::")
    if namespace not in NAMESPACES and name != NMS or name in LEFT_OUT:
        return
    base, _, overload = full.partition(".")
    func = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    # A view has the memory, and so the values, of what it is a view of.
    if func.is_view or base in CHANGE_NOTHING:
        return
    # Taken first: after impl() it would be the replacement.
    original = torch.library.get_kernel(func, key)
    places = [i for i, a in enumerate(func._schema.arguments) if str(a.type) in TENSOR]

    def kernel(keyset, *args, **kwargs):
        def run(*args, **kwargs):
            # The original may be in Python, too, as of torch._native. Where a mode waits, PyTorch
            # looks such kernels up by their operation, finds this one, and so on without end.
            if torch._C._len_torch_dispatch_stack():
                with _disable_current_modes():
                    return original.call_boxed(keyset, *args, **kwargs)
            return original.call_boxed(keyset, *args, **kwargs)

        args = with_tensors(args, places)
        watcher = watchers[-1] if watchers else None
        try:
            seen = watcher and watcher.begins(func)
            out, begun = None, library.begin_operation()
            try:
                out = handler(func, run, args, kwargs)
            finally:
                # After an error, too: a watcher counts all that runs until then as parts of this.
                work.end(begun, func, args, kwargs, out)
                if watcher:
                    watcher.ends(seen, func, args, kwargs, out)
        except Exception as error:
            if is_ours(error, kernel.__code__, run.__code__):
                write_failure(f"{func.name()} at {reads.line_at_work()}", error)
            raise
        return out

    # With the keyset of the call, by which the original is called in turn:
    # https://docs.pytorch.org/docs/stable/library.html
    _library(namespace).impl(full, kernel, key, with_keyset=True)
