"""The cost of an update, counted for each operation: arithmetic, and bytes moved.

Arithmetic is that of matrix products, convolutions and attention, by the formulas of
torch.utils.flop_counter, and one more. That of other operations is ignored: moving their operands
takes longer. An operation reads its operands once and writes its results once; a view does neither.
"""

import dataclasses
import functools
import re

import torch
import torch.distributed as dist
from torch.utils.flop_counter import flop_registry

from emulated_gpu.accounting import torch_private
from emulated_gpu.accounting.blocks import tensors
from emulated_gpu.operands import SOME, roles, touched

# These neither read nor write values: they allocate memory, or change a tensor's view of it.
NOTHING = re.compile(
    r"(new_)?empty(_like|_strided|_permuted|_quantized)?|"
    r"(resize|set|detach|t|transpose|squeeze|unsqueeze|as_strided)_"
)
COPY = re.compile(r"(_foreach_)?copy_|_to_copy")  # possibly between devices
# From FSDP2. It returns the part of its buffer that it writes, which its schema does not declare.
COPY_IN = "all_gather_copy_in"
NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
NAMES |= {torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8"}
aten = torch.ops.aten
if hasattr(aten, "_grouped_mm"):  # from PyTorch 2.8 on
    flop_registry[aten._grouped_mm] = lambda a, b, *_, **__: 2 * a.numel() * b.shape[-1]
# What a convolution becomes on a GPU; the kernel of a transposed one meets each of its inputs.
for _name in ("cudnn_convolution", "_conv_depthwise2d", "_slow_conv2d_forward", "conv_depthwise3d"):
    flop_registry[getattr(aten, _name)] = lambda x, w, *_, out_val, **__: (
        2 * out_val.numel() * w[0].numel()
    )
for _name in ("cudnn_convolution_transpose", "slow_conv_transpose2d", "slow_conv_transpose3d"):
    flop_registry[getattr(aten, _name)] = lambda x, w, *_, **__: 2 * x.numel() * w[0].numel()


@dataclasses.dataclass(slots=True)
class Operation:
    """An operation and its cost; sizes are in bytes."""

    flop: int = 0
    kind: str = "fp32"  # of the flop; or "tf32", "fp16", "bf16", "fp8", "attention" (in fp32)
    read: dict = dataclasses.field(default_factory=dict)  # {name of a storage: bytes}
    written: dict = dataclasses.field(default_factory=dict)
    gathered: int = 0  # exchanged between devices
    reduced: int = 0
    to_device: int = 0
    to_host: int = 0


class Cost:
    """The operations of an update on one type of device, and the bytes moved on the host."""

    def __init__(self, device):
        self.device = device
        self.operations = []
        self.on_host = 0  # bytes

    def start(self):
        """Forget the operations so far."""
        self.operations.clear()
        self.on_host = 0

    def totals(self):
        """Return the total cost of the operations, as a record's Cost."""
        every = self.operations
        return {
            "tflop": sum(o.flop for o in every) / 1e12,
            "moved_gb": sum(sum(p.values()) for o in every for p in (o.read, o.written)) / 1e9,
            "gathered_gb": sum(o.gathered for o in every) / 1e9,
            "reduced_gb": sum(o.reduced for o in every) / 1e9,
            "to_device_gb": sum(o.to_device for o in every) / 1e9,
            "to_host_gb": sum(o.to_host for o in every) / 1e9,
            "moved_on_host_gb": self.on_host / 1e9,
            "operations": len(every),
        }

    def note(self, ledger, func, args, kwargs, out):
        """Count an operation, which has returned `out`."""
        sends = torch_private.exchanges(func)
        count = self._exchanged if sends else self._counted
        if operation := count(ledger, func, args, kwargs, out):
            self.operations.append(operation)

    def _exchanged(self, ledger, func, args, kwargs, out):
        """Return the Operation of a collective; None without other devices, or on the host."""
        if group_size(func, args) == 1 or all(
            t.device.type != self.device for t in tensors((args, out))
        ):
            return None
        name = func._schema.name.partition("::")[2]
        kind = "reduced" if "reduce" in name else "gathered"  # or broadcast, scattered, sent
        # The whole may be on either side: shards are gathered into it, or it is reduced to shards.
        nbytes = max(sum(t.nbytes for t in tensors(part)) for part in (*args, out))
        return Operation(**{kind: nbytes})

    def _counted(self, ledger, func, args, kwargs, out):
        """Return the Operation of a computation or copy; None if it costs the device nothing."""
        name, how = _roles(func)
        if how is None:
            return None
        arguments = [*zip(how.values(), args), *((how[key], kwargs[key]) for key in kwargs)]
        operands = [(role, t) for role, part in arguments for t in tensors(part)]
        blocks = {ledger.block(t) for _, t in operands}
        # A result in the memory of an operand is a view of it, or is that operand.
        new = [t for t in tensors(out) if ledger.block(t) not in blocks]
        written = [t for role, t in operands if role in ("written", "both")] + new
        if name == COPY_IN:
            written.append(out[0])
        if not written:
            return None  # a view, or a number
        read = [t for role, t in operands if role in ("read", "both")]
        sources, targets = ({t.device.type for t in part} for part in (read, written))
        if self.device not in sources | targets:
            self.on_host += sum(map(touched, (*read, *written)))
            return None
        operation = Operation()
        if COPY.fullmatch(name) and sources and sources != targets:
            copied = sum(map(touched, read))
            if self.device in targets:
                operation.to_device = copied
            else:
                operation.to_host = copied
        if formula := _formula(func):
            flop = formula(*args, **kwargs, out_val=out)
            operation.flop, operation.kind = _arithmetic(func, args, kwargs, flop)
        some = None  # bytes of the first operand that are touched, if not all
        if SOME.fullmatch(name):
            some = sum(map(touched, tensors(args[2] if name == "index_put_" else out)))
        for sizes, part in ((operation.read, read), (operation.written, written)):
            on_device = [t for t in part if t.device.type == self.device]
            # An operand that is passed twice, as in x * x, is read once.
            views = {
                (ledger.block(t), t.storage_offset(), t.shape, t.stride()): t for t in on_device
            }
            for (block, *_), t in views.items():
                nbytes = touched(t) if some is None or t is not args[0] else some
                sizes[block] = sizes.get(block, 0) + nbytes
        return operation if operation.read or operation.written else None


def group_size(func, args):
    """Return the number of processes in the group of a communication operation."""
    if func.namespace == "c10d":
        groups = (
            dist.ProcessGroup.unbox(a)
            for a in args
            if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type())
        )
        return next(groups, dist.group.WORLD).size()
    name = next(v for a, v in zip(func._schema.arguments, args) if a.name == "group_name")
    return dist.distributed_c10d._resolve_process_group(name).size()


@functools.cache
def _roles(func):
    """Return an operation's name, {argument: "read", "written" or "both"}; None if it is free."""
    name = func._schema.name.partition("::")[2]
    if NOTHING.fullmatch(name):
        return name, None
    if name == COPY_IN:
        return name, {**roles(func), "all_gather_output": "neither"}
    return name, roles(func)


@functools.cache
def _formula(func):
    """Return PyTorch's formula for the floating-point operations of a product, or None."""
    # PyTorch 2.11 has none for attention on a CPU, which takes the same arguments as on a GPU.
    alike = getattr(aten, func._overloadpacket.__name__.replace("_for_cpu", ""), None)
    if func._overloadpacket is aten.convolution_backward:
        return _of_convolution
    return flop_registry.get(func._overloadpacket) or flop_registry.get(alike)


def _of_convolution(gradient, x, weight, _, *options, out_val):
    """Count the forward pass once per gradient. (PyTorch's own formula ignores groups.)"""
    forward = flop_registry[aten.convolution]
    return forward(x, weight, None, *options[:4], out_val=gradient) * sum(options[-1][:2])


def _arithmetic(func, args, kwargs, flop):
    """Return a product's floating-point operations, given those without a mask; and their kind."""
    arguments = {a.name: value for a, value in zip(func._schema.arguments, args)} | kwargs
    name = func._schema.name
    first = next(tensors(args))
    if arguments.get("is_causal"):  # of n x n pairs, those above the diagonal are left out
        n = first.shape[-2]
        flop = flop * (n + 1) // (2 * n)
    if first.dtype in NAMES:
        return flop, NAMES[first.dtype]
    if "attention" in name:
        return flop, "attention"
    if "conv" in name:
        allows_tf32 = torch.backends.cudnn.allow_tf32
    else:
        allows_tf32 = torch.get_float32_matmul_precision() != "highest"
    return flop, "tf32" if allows_tf32 else "fp32"
