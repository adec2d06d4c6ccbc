"""A pretend GPU for tensors without memory: what shared/simulation.py runs the stages on.

PyTorch's fake tensors have shape, type and device, and no data, so that a model of any size runs anywhere. The device is
PyTorch's slot for accelerators of other makers, named "gpu" here: with the real "cuda" the backward pass wants a driver.
The private names of PyTorch that the predictor needs are here and in shared/simulated_processes.py (those of the ledger
are in shared/torch_hooks.py), each with what goes wrong without it. All this holds for a whole process and cannot be undone: one process per simulation.
"""

import contextlib
import itertools
import weakref

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lightning.fabric.accelerators import CUDAAccelerator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed import _state_dict_utils
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.optim.optimizer import _foreach_supported_types
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from shared.torch_hooks import wrapped

DEVICE = "gpu"
# What CUDA's autocast runs in 16 bit, and what in 32, of the operations that our models have:
# https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float16
LOWER = ("conv2d", "linear", "matmul", "mm", "addmm", "bmm", "baddbmm")
FULL = ("layer_norm", "cross_entropy_loss", "nll_loss")


class Stream:
    """A stream of the pretend device, or an event on one: done at once."""

    current = 0  # the id of the stream that operations run on
    device_index, device_type = 0, 20

    def __init__(self, *args, **kwargs):
        self.stream_id = next(numbers)

    def record_event(self, event=None):
        return Event()

    wait_event = wait_stream = lambda *_: None


class Event(Stream):
    def record(self, stream=None):
        return self


numbers = itertools.count()


class Backend:
    """The module torch.gpu: what PyTorch and FSDP2 ask of an accelerator's module."""

    Event, Stream = Event, Stream

    def __init__(self):
        self.default = Stream()

    def is_available(self):
        return True

    is_initialized = is_available

    def device_count(self):
        return 1

    def current_device(self):
        return 0

    def current_stream(self, device=None):
        return self.default

    # FSDP2 gathers weights and reduces gradients on streams of their own, and the caching allocator lets no stream use
    # what another one has left: without this, too little would seem to be reserved.
    @contextlib.contextmanager
    def stream(self, stream):
        before, Stream.current = Stream.current, stream.stream_id
        try:
            yield
        finally:
            Stream.current = before

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


class Accelerator(CUDAAccelerator):
    """For Fabric(accelerator=...): treated as CUDA, with the pretend device instead."""

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
    """Makes the pretend device known."""
    _setup_privateuseone_for_python_backend(DEVICE, backend_module=Backend())
    # Optimizers take their fast path, which holds more, for parameters of known types only: without this, Adam's step
    # would be the slow one, unlike on CUDA.
    _foreach_supported_types.append(FakeTensor)
    # Autocast has nothing for a device of this slot: without this, 02 would compute in 32 bit.
    libraries.append(torch.library.Library("_", "IMPL"))
    libraries[-1].fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    libraries.append(torch.library.Library("aten", "IMPL"))
    for name in LOWER + FULL:
        libraries[-1].impl(name, _autocasting(getattr(torch.ops.aten, name), name in FULL), "AutocastPrivateUse1")


mode = FakeTensorMode(allow_non_fake_inputs=True)  # one for all: tensors of two modes do not mix
libraries = []  # what is registered lives as long as these
weight_copies = {}  # id of a weight -> weight, its copy in 16 bit: autocast makes one per forward pass


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
            return operation(*tree_map_only(torch.Tensor, cast, args), **tree_map_only(torch.Tensor, cast, kwargs))

    return kernel


@contextlib.contextmanager
def tensors_without_memory():
    """While the context is active, every new tensor is a fake one, and what does not work with them is mended."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mode)
        stack.callback(register_module_buffer_registration_hook(_forget_numbers).remove)
        for owner, name, wrapper in (
            (torch.Tensor, "__bool__", _no),
            (torch, "tensor", _by_way_of_the_host),
            (torch, "load", _forgetting),
            (torch, "clear_autocast_cache", _clear_copies),
            (weakref, "getweakrefs", _no_weak_references),
            (F, "scaled_dot_product_attention", _attention_of_cuda),
            (dist, "broadcast_object_list", _nothing_to_tell),
            (dist, "init_device_mesh", _with_real_tensors),
            (_state_dict_utils, "compute_local_shape_and_global_offset", _with_real_tensors),
            (_state_dict_utils, "_broadcast_tensors", _receiving),
        ):
            stack.enter_context(wrapped(owner, name, wrapper))
        yield


# A decision that depends on data cannot be made without. Initialising asks whether a random number was out of bounds and
# has to be drawn again: no. Without this, building the model would fail.
def _no(original, tensor):
    return False if isinstance(tensor, FakeTensor) else original(tensor)


# A fake tensor made of numbers remembers them and computes with them where it can, but the pretend device has no memory to
# write them into. Without these two, transformers' models could not be built there, or not moved with buffers made so.
def _by_way_of_the_host(original, *args, device=None, **kwargs):
    device = torch.device(device) if device else torch.empty(0).device
    made = original(*args, device=device if device.type != DEVICE else "cpu", **kwargs)
    return made if device.type != DEVICE else torch.empty(made.shape, dtype=made.dtype, device=device)


def _forget_numbers(module, name, buffer):
    if isinstance(buffer, FakeTensor):
        buffer.constant = None


# Fake tensors cache what operations return, and keep the storages that a file was read into as a part of the question:
# without this, the state dict would seem to stay in memory.
def _forgetting(original, *args, **kwargs):
    try:
        return original(*args, **kwargs)
    finally:
        FakeTensorMode.cache_clear()


# The copies of weights that autocast keeps, ours like those of other devices, are dropped when the forward pass ends.
def _clear_copies(original):
    weight_copies.clear()
    original()


# Moving a model swaps the contents of fake tensors, which PyTorch refuses for a tensor that is weakly referenced; fake
# ones are, by their mode. Without this, no model could be moved or converted.
def _no_weak_references(original, object):
    return []


# The kernels that CUDA takes: FlashAttention in 16 bit without a mask (or cuDNN's, which keeps as much); else the
# memory-efficient one, which wants keys for every head, and the mask as numbers, (batch, 1, length, length); step by step,
# with all attention weights in memory, only what neither takes. Without this, the simulation would take the CPU's kernels,
# which keep other things, and with dropout all attention weights.
# Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
def _attention_of_cuda(original, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if query.device.type != DEVICE:
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if key.shape[1] != query.shape[1]:
        return torch.ops.aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
        attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    with_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return torch.ops.aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, with_gradient, dropout_p, is_causal, scale=scale)[0]


# The first process tells the others what it will send, packed into numbers that fake tensors do not have.
def _nothing_to_tell(original, *args, **kwargs):
    pass


# Which devices are side by side, and which rows of a weight a process gets, is computed with small tensors whose values are
# then read: without this, making a mesh and loading a sharded model would fail.
def _with_real_tensors(original, *args, **kwargs):
    with unset_fake_temporarily():
        return original(*args, **kwargs)


# The first process has the file, the others, if any, receive its tensors into memory of their own, and so may need more.
# Here the first does too. Without this, loading on a CPU would be predicted for the luckiest of the processes.
def _receiving(original, full_state, local_state, keys, device, group=None):
    with torch.device(dist.group.WORLD._device_types[0]):
        received = {} if dist.get_world_size() == 1 else {key: torch.empty(full_state[key].shape, dtype=full_state[key].dtype) for key in keys}
    return original({**full_state, **received}, local_state, keys, device, group)
