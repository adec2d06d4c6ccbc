"""A simulated GPU for tensors without memory, on which shared/predict/simulation.py runs scripts.

PyTorch's fake tensors have a shape, a type and a device, but no data, so a model of any size runs
anywhere. The device is the one that PyTorch reserves for accelerators of other vendors, named "gpu"
here: with the real "cuda", the backward pass would need a driver. The private names of PyTorch that
the predictor needs are here, in processes.py and in module_tracker.py, each with what goes wrong
without it. The changes to PyTorch last, so every simulation needs a process of its own.
"""

import contextlib
import itertools
import types
import weakref

import torch
import torch.nn.functional as F
from lightning.fabric.accelerators import CUDAAccelerator
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.optim.optimizer import _foreach_supported_types
from torch.optim.optimizer import register_optimizer_step_post_hook as after_step
from torch.optim.optimizer import register_optimizer_step_pre_hook as before_step
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from shared.emulator import cards
from shared.memory.torch_private import wrapped
from shared.predict import attention, machine, processes

DEVICE = "gpu"
# Raised by operations whose result, or its size, depends on data.
NEEDS_NUMBERS = (DataDependentOutputException, DynamicOutputShapeException)
# Operations of our models that CUDA's autocast runs in 16 bits, and those in 32 bits:
# https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float16
LOWER = ("conv2d", "linear", "matmul", "mm", "addmm", "bmm", "baddbmm")
FULL = ("layer_norm", "cross_entropy_loss", "nll_loss")
# Operations with a kernel on CUDA, which PyTorch composes of others on other devices.
KERNELS = ("silu_backward", "mish_backward", "_fused_rms_norm")


class Stream:
    """A stream of the simulated device, or an event on one; all work is done at once."""

    current = 0  # the id of the stream that operations run on
    device_index, device_type = 0, 20

    def __init__(self, *args, **kwargs):
        self.stream_id = next(numbers)

    def record_event(self, event=None):
        return event or Event()

    wait_event = wait_stream = synchronize = lambda *_: None
    query = lambda *_: True
    is_capturing = lambda *_: False


class Event(Stream):
    elapsed_time = lambda *_: 1.0  # milliseconds
    wait = lambda *_: None

    def record(self, stream=None):
        return self


numbers = itertools.count()


# FSDP2 gathers weights and reduces gradients on streams of their own, and the caching allocator
# lets no stream reuse the memory of another. Without this, predictions of reserved memory would be
# too low.
@contextlib.contextmanager
def on(stream):
    before, Stream.current = Stream.current, stream.stream_id
    try:
        yield
    finally:
        Stream.current = before


default = Stream()
# The module torch.gpu: what PyTorch and FSDP2 call in an accelerator's module.
backend = types.SimpleNamespace(
    Event=Event,
    Stream=Stream,
    stream=on,
    is_available=lambda: True,
    is_initialized=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
    current_stream=lambda device=None: default,
    manual_seed_all=lambda seed: None,
    _is_in_bad_fork=lambda: False,
    get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
)


class Accelerator(CUDAAccelerator):
    """An accelerator for Fabric: treated as CUDA, but with the simulated device."""

    def setup_device(self, device):
        pass

    @staticmethod
    def parse_devices(devices):
        return list(range(devices))

    @staticmethod
    def get_parallel_devices(devices):
        return [torch.device(DEVICE, i) for i in devices]

    @staticmethod
    def is_available():
        return True


def register():
    """Register the simulated device with PyTorch, once."""
    if libraries:
        return
    _setup_privateuseone_for_python_backend(DEVICE, backend_module=backend)
    # Optimizers take their fast path, which holds more, only for parameters of known types. Without
    # this, Adam would take the slow path, unlike on CUDA.
    _foreach_supported_types.append(FakeTensor)
    # Autocast has no rules for this device. Without this, 02 would compute in 32 bits.
    libraries.append(torch.library.Library("_", "IMPL"))
    libraries[-1].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    libraries.append(torch.library.Library("aten", "IMPL"))
    for name in LOWER + FULL:
        kernel = _autocasting(getattr(torch.ops.aten, name), name in FULL)
        libraries[-1].impl(name, kernel, "AutocastPrivateUse1")
    # A kernel is never called, since fake tensors need none. But without one, the backward pass of
    # SiLU would be composed of other operations, and hold seven tensors at once.
    for name in KERNELS:
        libraries[-1].impl(name, torch.library.fallthrough_kernel, "PrivateUse1")


class Mode(FakeTensorMode):
    """Fake tensors, and substitutes for the results of operations that depend on data."""

    # A small fake tensor created from constants, such as an index, keeps its values as long as
    # possible. But the simulated device has no memory to move them to. Without this, DeBERTa and
    # Falcon could not be simulated.
    avoid_device_init = True
    texts = None  # number of texts just found to have equally many end tokens

    # DTensor waits for a collective and continues with the tensor it returns. A fake wait would
    # return a new one. Without this, everything received would be counted twice.
    #
    # T5 and BART classify by the last token of each text: they check that all texts of a batch have
    # equally many end tokens, and then select these with a mask. Every text has one. Without this,
    # they could not be simulated.
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]
        if func is torch.ops.aten.unique_consecutive.default:
            self.texts = len(args[0])
            return tuple(args[0].new_empty(n) for n in (1, 0, 0))
        if func is torch.ops.aten.nonzero.default and self.texts == len(args[0]):
            self.texts = None
            return args[0].new_empty(len(args[0]), args[0].ndim, dtype=torch.long)
        return super().__torch_dispatch__(func, types, args, kwargs or {})


mode = Mode(allow_non_fake_inputs=True)  # only one, as tensors of two modes do not mix
stepping = []  # not empty while a script builds, or an optimizer steps
libraries = []  # kept here, because deleting them removes what they register
# id of a weight -> (the weight, its copy in 16 bits). Autocast makes one copy per forward pass.
weight_copies = {}


def _autocasting(operation, full):
    def kernel(*args, **kwargs):
        dtype = torch.float32 if full else torch.get_autocast_dtype(DEVICE)

        def cast(t):
            if not t.is_floating_point() or t.dtype == dtype:
                return t
            if full or not (t.is_leaf and t.requires_grad and torch.is_autocast_cache_enabled()):
                return t.to(dtype)
            if id(t) not in weight_copies:
                weight_copies[id(t)] = t, t.to(dtype)
            return weight_copies[id(t)][1]

        with torch.autocast(DEVICE, enabled=False):
            converted = tree_map_only(torch.Tensor, cast, (args, kwargs))
            return operation(*converted[0], **converted[1])

    return kernel


@contextlib.contextmanager
def tensors_without_memory(card=cards.DEFAULT, version=machine.INSTALLED):
    """Make every new tensor a fake one, and replace what does not work with fake tensors."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mode)
        # An error in a thread of the backward pass would end the process without a message.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        for hook in (
            register_module_buffer_registration_hook(_forget_numbers),
            before_step(lambda *_: stepping.append(True)),
            after_step(lambda *_: stepping.pop() and None),
        ):
            stack.enter_context(hook)
        attend = F, "scaled_dot_product_attention", attention.of_cuda(DEVICE, card, version)
        for owner, name, wrapper in (attend, *REPLACED):
            stack.enter_context(wrapped(owner, name, wrapper))
        yield


# A fake tensor created from constants keeps their values and computes with them where it can. But
# the simulated device has no memory to write them to. Without these two functions, models of
# transformers could not be built there, or could not be moved if they have such buffers.
def _by_way_of_the_host(original, *args, device=None, **kwargs):
    device = torch.device(device) if device else torch.empty(0).device
    if device.type != DEVICE:
        return original(*args, device=device, **kwargs)
    made = original(*args, device="cpu", **kwargs)
    return torch.empty(made.shape, dtype=made.dtype, device=device)


def _forget_numbers(module, name, buffer):
    if isinstance(buffer, FakeTensor):
        buffer.constant = None


# FakeTensorMode caches the results of operations, and the keys of this cache keep the storages of
# a loaded file alive. Without this, the state dict would seem to stay in memory.
def _forgetting(original, *args, **kwargs):
    try:
        with wrapped(torch.storage.TypedStorage, "_data_ptr", _somewhere):
            return original(*args, **kwargs)
    finally:
        FakeTensorMode.cache_clear()


# Tied weights find their shared storage by its key in the file, but in PyTorch 2.11 only if it has
# an address in memory. Without this, they would seem to be loaded twice there.
def _somewhere(original, storage):
    return original(storage) or 1


# Autocast drops its copies of weights when the forward pass ends. Without this, the copies that are
# kept here would stay.
def _clear_copies(original):
    weight_copies.clear()
    original()


# A deep copy of a fake tensor that copies its storage would corrupt memory.
def _copied(original, tensor, memo):
    if not isinstance(tensor, FakeTensor):
        return original(tensor, memo)
    if id(tensor) not in memo:
        copy = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, tensor.requires_grad)
        memo[id(tensor)] = copy
    return memo[id(tensor)]


REPLACED = (
    # A condition that depends on data cannot be evaluated without data. Initialization asks whether
    # a random number is out of bounds and has to be drawn again; the answer is always no. Without
    # this, building the model would fail.
    (torch.Tensor, "__bool__", lambda true, t: not isinstance(t, FakeTensor) and true(t)),
    # Adafactor computes with values that it reads from tensors, and so does bitsandbytes when it
    # creates optimizers. No size depends on them. (In a model, one may.) Without this, both fail.
    (
        torch.Tensor,
        "item",
        lambda item, t: 1 if stepping and isinstance(t, FakeTensor) else item(t),
    ),
    # A step is skipped if a gradient is infinite; none is. Without this, 02 could not step.
    (torch.amp.GradScaler, "_maybe_opt_step", lambda _, scaler, optimizer, *args: optimizer.step()),
    (torch.Tensor, "__deepcopy__", _copied),
    (torch.nn.Parameter, "__deepcopy__", _copied),
    (torch, "tensor", _by_way_of_the_host),
    (torch, "load", _forgetting),
    (torch, "clear_autocast_cache", _clear_copies),
    # Moving a model swaps the contents of fake tensors. PyTorch refuses that for a tensor with weak
    # references to it, and the mode of a fake tensor holds some. Without this, no model could be
    # moved or converted.
    (weakref, "getweakrefs", lambda original, object: []),
    *processes.REPLACED,
)
