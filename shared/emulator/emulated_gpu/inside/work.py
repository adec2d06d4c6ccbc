"""The duration of PyTorch's own kernels: by the bytes that an operation moves, or by attention.

The library sees that a kernel is launched, and not what it does. So an operation's duration is
estimated here, when it has ended, from its arguments. Products, convolutions and copies have theirs
already: c/fitted/clock.c.

The shares are of one H200, in updates of ViT-L with 4 to 128 images at once (h200.jsonl.xz), where
data come from memory as often as from its cache; of convolutional networks, as in clock.c.
"""

import math
import os
import re

import torch

from emulated_gpu.inside import library
from emulated_gpu.inside.memory import on_gpu
from emulated_gpu.inside.trees import tensors_of
from emulated_gpu.operands import SOME, roles, touched

MEMORY = 0.68  # of the memory's highest rate that kernels reach
# Bytes that a multiprocessor reads and writes in a cycle of its clock, where that is less, and the
# microseconds until they reach it; the first pattern that fits the operation's name counts. So
# cards with less memory bandwidth for each multiprocessor reach more of it.
RATES = (
    (re.compile(r"batch_norm"), 6.8, 1.5),
    (re.compile(r"norm_backward"), 3.8, 1.5),
    (re.compile(r"norm"), 6.4, 1.5),
    # Sums over the rows of a matrix, which its threads read across.
    (re.compile(r"(?<!clamp_)(sum|mean|prod|var|std|max|min|arg\w+)(?!_pool)(_|$)"), 8.6, 8),
    (re.compile(r"conv_depthwise"), 3.6, 1.5),
    (re.compile(r""), math.inf, 1.5),
)
ANOTHER_LAYOUT = 6.1  # bytes per cycle of a copy, whose threads read or write across
DEPTHWISE_BACKWARD = 0.8  # PyTorch's own kernels, for strides that are not cuDNN's
# In training with channels first, cuDNN has a block of threads for each channel, so few channels
# leave most of the card idle: bytes per cycle of a block, and of a multiprocessor that has enough.
CHANNEL, CHANNELS = 2.4, 3.3
WINDOWS = 2.7, 0.8  # their values that pooling reads per cycle: forward, backward
# Attention: forward and backward, of the highest rate with heads of 128 values; smaller ones leave
# tensor cores waiting for the softmax.
ATTENTION = re.compile(r"aten::_scaled_dot_product_(flash|efficient|cudnn)_attention(_backward)?")
FORWARD, BACKWARD = 0.68, 0.52
HEAD = 128
TILE = 128  # tokens that a block of threads takes at once: others are padded
START_US = 5
# Kernels that the host would start in the time of a hook, a call of Python: 0.54 to 0.63 by four
# pairs of updates on that H200, with checkpoints and without. Of what was not used, the update of
# 09_act_ckpt/train was 36 % too short before and is 6 % too short now; two with LoRA on a T4, which
# waits for its host, were 18 and 9 % too short, and are 1 and 15 % too long.
HOOK = 0.6

PLAIN = (torch.Tensor, torch.nn.Parameter)
rates = {}  # of the card, in operations, bytes or cycles per ns


def read_rates():
    """Read the card's rates from the settings of launch.py."""
    fp32, tf32, half, memory, *_, cycles = map(float, os.environ["EMULATED_RATES"].split())
    rates["multiprocessors"] = int(os.environ["EMULATED_MULTIPROCESSORS"])
    # Attention multiplies fp32 as three products of TF32, where there is TF32.
    rates.update(fp32=max(fp32, tf32 / 3), half=half, memory=memory, cycles=cycles)


def time_hooks():
    """Let the host's time pass in hooks for saved tensors, by which `checkpoint()` works.

    Autograd calls one for each tensor that the forward pass saves, and for each that the backward
    pass wants; recomputation saves them again. So where the host sets the pace, checkpointing makes
    an update much longer than the kernels do that it starts again. The older form, with
    `use_reentrant=True`, has no such hooks.
    """
    original = torch.autograd.graph.saved_tensors_hooks.__init__

    def init(self, pack_hook, unpack_hook):
        original(self, _timed(pack_hook), _timed(unpack_hook))

    torch.autograd.graph.saved_tensors_hooks.__init__ = init


def _timed(hook):
    def timed(tensor):
        library.let_host_work(HOOK)
        return hook(tensor)

    return timed


def end(begun, func, args, kwargs, out):
    """Lengthen an operation to its duration; `begun` is from library.begin_operation()."""
    taken = library.end_operation(begun)
    if not taken:
        return
    moving = _moving_ns(func, args, kwargs, out, taken)
    missing = max(moving, _attention_ns(func, args, kwargs, out))
    if missing > taken:
        library.lengthen(missing - taken)


def _moving_ns(func, args, kwargs, out, taken):
    """Return the ns in which an operation moves its bytes, at the rate that such kernels reach."""
    name = func._schema.name.partition("::")[2]
    rate, start_us = next((r, us) for pattern, r, us in RATES if pattern.search(name))
    # As in a transposition.
    if "copy" in name and len({t.stride() for t in plain_tensors((args, out)) if t.dim() > 1}) > 1:
        rate = ANOTHER_LAYOUT
    if "cudnn_batch_norm" in name and args[0].is_contiguous() and args[5] is not False:
        rate = min(CHANNEL * args[0].shape[1] / rates["multiprocessors"], CHANNELS)
    if name == "convolution_backward" and taken < START_US * 1e3:  # no library computes it
        rate = DEPTHWISE_BACKWARD
    reached = min(rates["memory"] * MEMORY, rates["cycles"] * rate)
    ns = start_us * 1e3 + moved(func, args, kwargs, out) / reached
    if re.match(r"(max|avg)_pool\dd", name):
        backward = "backward" in name
        pooled = args[0] if backward else plain_tensors(out)[0]
        values = pooled.numel() * math.prod(args[1 + backward])
        ns += values / (rates["cycles"] * WINDOWS[backward])
    return ns


def _attention_ns(func, args, kwargs, out):
    """Return the ns of attention's arithmetic, 0 of other operations."""
    found = ATTENTION.fullmatch(func._schema.name)
    if not found:
        return 0
    backward = bool(found[2])
    query, key = args[backward : backward + 2]
    if not on_gpu(query):  # nested tensors have no shape
        return 0
    # Two products forward, five backward, each of all queries with all keys.
    flop = (10 if backward else 4) * query.numel() * key.shape[-2]
    padded = [(t.shape[-2] + TILE - 1) // TILE * TILE / t.shape[-2] for t in (query, key)]
    values = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
    causal = 0.5 if values.get("is_causal") else 1
    head = min(query.shape[-1] / HEAD, 1)
    if query.dtype == torch.float32:
        rate = rates["fp32"] * head**0.5
    else:
        rate = rates["half"] * head
    share = BACKWARD if backward else FORWARD
    return START_US * 1e3 + flop * padded[0] * padded[1] * causal / (rate * share)


def moved(func, args, kwargs, out):
    """Return the bytes that an operation reads and writes on the GPU."""
    how = roles(func)
    parts = [*zip(how.values(), args), *((how[name], kwargs[name]) for name in kwargs)]
    reads, writes = {}, {}
    for role, part in parts:
        for t in plain_tensors(part):
            # An operand that is passed twice, as in x * x, is read once.
            view = (t.data_ptr(), t.shape, t.stride())
            if role != "written":
                reads[view] = touched(t)
            if role != "read":
                writes[view] = touched(t)
    # A result in the memory of an operand is a view of it, or is that operand.
    old = {address for address, *_ in (*reads, *writes)}
    new = [t for t in plain_tensors(out) if t.data_ptr() not in old]
    name = func._schema.name.partition("::")[2]
    if SOME.fullmatch(name) and args:
        some = sum(map(touched, plain_tensors(args[2] if name == "index_put_" else new)))
        for t in plain_tensors(args[0]):
            view = (t.data_ptr(), t.shape, t.stride())
            for sizes in (reads, writes):
                if view in sizes:
                    sizes[view] = min(sizes[view], some)
    return sum(reads.values()) + sum(writes.values()) + sum(map(touched, new))


def plain_tensors(nested):
    """Return the tensors on the GPU that have memory, as others than PLAIN may not."""
    return [t for t in tensors_of(nested) if type(t) in PLAIN and on_gpu(t)]
