"""CUDA as a script sees it, answered from the simulation.

The simulated device has another name in PyTorch (see predict/gpu.py). So "cuda" is translated on
the way in, and back where the script, or a library that is not PyTorch, asks for a tensor's device.
"""

import contextlib
import sys
import types
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from shared.memory.torch_private import wrapped
from shared.predict import allocator, gpu
from shared.predict.tables import CONTEXT_GB

INSIDE = {"torch", "shared"}  # the packages that know the device by its own name
# Modules of PyTorch that compare devices with "cuda".
OUTSIDE = {"torch.nn.parallel.data_parallel"}
CUDA = torch.device("cuda", 0)
# Functions that take a device type as a string, and no tensors.
BY_TYPE = ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled")
BY_TYPE += ("set_autocast_dtype", "get_device_module")


def translated(device):
    """Return the simulated device for CUDA in any form, anything else as it is."""
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return device.replace("cuda", gpu.DEVICE)
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device(gpu.DEVICE, device.index or 0)
    return device


def outside(frame):
    """Return whether a frame runs code of a script, or of a library other than PyTorch."""
    name = frame.f_globals.get("__name__", "")
    return name in OUTSIDE or name.partition(".")[0] not in INSIDE


class Translation(TorchFunctionMode):
    """Translation of devices in PyTorch's arguments; array(t) returns a numpy array."""

    def __init__(self, array):
        super().__init__()
        tensor = torch.Tensor
        self._instead = {
            tensor.cuda: lambda t, *_, **__: t.to(gpu.DEVICE),
            tensor.pin_memory: lambda t, *_: t,
            tensor.is_pinned: lambda t, *_: True,
        }
        self._of_fake = {
            tensor.data.__set__: _set_data,
            tensor.is_cuda.__get__: lambda t: t.device.type in ("cuda", gpu.DEVICE),
            tensor.get_device: lambda t: 0,
            torch.isfinite: _finite,
            tensor.isfinite: _finite,
            tensor.numpy: lambda t, **_: array(t),
            tensor.__array__: lambda t, *_, **__: array(t),
            tensor.tolist: lambda t: array(t).tolist(),
            tensor.__repr__: lambda t, **_: f"tensor(..., shape={tuple(t.shape)})",
            tensor.__format__: lambda t, spec: (
                format(array(t).item(), spec) if not t.ndim else repr(t)
            ),
        }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        kwargs = {key: translated(value) for key, value in kwargs.items()}
        args = tuple(map(translated, args))
        if func in self._instead:
            return self._instead[func](*args, **kwargs)
        if func in self._of_fake and isinstance(args[0], FakeTensor):
            return self._of_fake[func](*args, **kwargs)
        return func(*args, **kwargs)


# A script may continue only if its loss is finite.
def _finite(t):
    return torch.tensor(True).view(t.shape) if t.numel() == 1 else torch.ones_like(t, dtype=bool)


# Fake tensors refuse data of another device. Without this, FSDP1 could not offload.
def _set_data(tensor, data):
    data = data if isinstance(data, FakeTensor) else gpu.mode.from_tensor(data)
    if tensor.device == data.device:
        torch.Tensor.data.__set__(tensor, data)
        return
    new = data.detach().requires_grad_(tensor.requires_grad)
    torch._C._swap_tensor_impl(tensor, new)
    tensor.fake_device, new.fake_device = new.fake_device, tensor.fake_device


class Counters:
    """The counters of PyTorch's allocator, from a ledger's log so far."""

    def __init__(self, ledger):
        self.ledger, self.emptied = ledger, []
        self.replay = None

    def now(self):
        # A script may set the environment variable itself, before its first allocation.
        self.replay = self.replay or allocator.Replay(gpu.DEVICE, allocator.expandable())
        for block, change in self.ledger.events[len(self.replay.events) :]:
            self.replay.take(block, change)
        return self.replay

    def reset(self, *_):
        self.now().reset()

    def empty(self):
        self.emptied.append(len(self.now().events))
        self.replay.allocator.empty_cache()

    def nested(self, *_):
        """Return these stats as nested dictionaries; no memory is known that was not asked for."""
        stats, found = self.stats(), {}
        for name in ("allocated_bytes", "reserved_bytes"):
            now, peak = (stats[f"{name}.all.{which}"] for which in ("current", "peak"))
            found[name] = {"all": {"current": now, "peak": peak}}
        return {**found, "requested_bytes": found["allocated_bytes"]}

    def stats(self, *_):
        """Return those of torch.cuda.memory_stats() that are known."""
        replay = self.now()
        known = {"allocated": replay, "active": replay, "reserved": replay.allocator}
        found = {}
        for name, its in known.items():
            now = its.allocated if its is replay else its.reserved
            found |= {f"{name}_bytes.all.current": now, f"{name}_bytes.all.peak": its.peak}
        return {**found, "num_alloc_retries": 0, "num_ooms": 0}


def _answers(card, counters, devices):
    """Return {name in torch.cuda: the answer, or a function}."""
    stats, total = counters.stats, int(card.gib * 2**30)
    properties = types.SimpleNamespace(
        name=f"NVIDIA {card.title}",
        total_memory=total,
        major=card.capability[0],
        minor=card.capability[1],
        multi_processor_count=card.multiprocessors,
        max_threads_per_multi_processor=card.threads,
        warp_size=32,
        gcnArchName="",
        is_integrated=0,
    )

    def stat(name):
        return lambda *_, **__: stats()[name]

    def free(*_):
        return total - int(CONTEXT_GB * 1e9) - stats()["reserved_bytes.all.current"], total

    def summary(*_, **__):
        return "\n".join(f"{name}: {value}" for name, value in stats().items())

    nothing = "synchronize manual_seed manual_seed_all seed set_device init _lazy_init ipc_collect"
    nothing += " set_rng_state set_rng_state_all set_per_process_memory_fraction _check_capability"
    return {
        **dict.fromkeys(nothing.split()),
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": card.bf16,
        "device_count": devices,
        "current_device": 0,
        "get_device_capability": card.capability,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "get_arch_list": [f"sm_{properties.major}{properties.minor}"],
        "get_rng_state": torch.ByteTensor(16),
        "get_rng_state_all": [],
        "utilization": 100,
        "current_stream": lambda *_, **__: gpu.default,
        "default_stream": lambda *_, **__: gpu.default,
        "is_current_stream_capturing": False,
        "stream": gpu.on,
        "Stream": gpu.Stream,
        "Event": gpu.Event,
        "mem_get_info": free,
        "memory_stats": stats,
        "memory_stats_as_nested_dict": counters.nested,
        "memory_summary": summary,
        "empty_cache": counters.empty,
        "reset_peak_memory_stats": counters.reset,
        "reset_max_memory_allocated": counters.reset,
        "reset_accumulated_memory_stats": None,
        "memory_allocated": stat("allocated_bytes.all.current"),
        "max_memory_allocated": stat("allocated_bytes.all.peak"),
        "memory_reserved": stat("reserved_bytes.all.current"),
        "max_memory_reserved": stat("reserved_bytes.all.peak"),
    }


@contextlib.contextmanager
def seen(card, ledger, array, devices=1):
    """Show the card to all code as its GPU while the context is active; yield its Counters."""
    counters = Counters(ledger)
    answers = _answers(card, counters, devices)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        for name, answer in answers.items():
            call = answer if callable(answer) else lambda *_, answer=answer, **__: answer
            enter(mock.patch.object(torch.cuda, name, call, create=True))
            if hasattr(torch.accelerator, name):
                enter(mock.patch.object(torch.accelerator, name, call))
        enter(mock.patch.object(torch.cuda.memory, "memory_stats", counters.stats))
        enter(
            mock.patch.object(
                torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda")
            )
        )
        for name in ("device_index", "set_device_index"):
            enter(mock.patch.object(torch.accelerator, name, contextlib.nullcontext))
        for name in BY_TYPE:
            enter(wrapped(torch, name, _of_types))
        enter(mock.patch.object(torch.Tensor, "record_stream", lambda *_: None))
        enter(wrapped(DeviceMesh, "__init__", _of_types))
        enter(wrapped(torch.autocast, "__init__", _of_types))
        enter(wrapped(_device.DeviceContext, "__init__", _of_types))
        own = FakeTensor.device

        def device(tensor):
            found = own.fget(tensor)
            return CUDA if found.type == gpu.DEVICE and outside(sys._getframe(1)) else found

        enter(mock.patch.object(FakeTensor, "device", property(device, own.fset)))
        enter(Translation(array))
        yield counters


def _of_types(original, *args, **kwargs):
    return original(*map(translated, args), **{key: translated(kwargs[key]) for key in kwargs})
