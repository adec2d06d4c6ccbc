"""Promise: the cost of an update agrees with hand calculations."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from emulated_gpu.operands import touched
from emulated_gpu.why.cost import Cost
from shared.lab.records import stored
from shared.memory.ledger import Ledger

BLOCKS, WIDTH = 24, 1024  # of ViT-L
BLOCK = torch.nn.TransformerEncoderLayer(
    32, 4, 128, dropout=0, batch_first=True, norm_first=True, activation="gelu"
)


class Counting(Ledger):
    """A ledger on a CPU that counts the cost of operations, as a Watch does on a GPU."""

    def __init__(self):
        super().__init__()
        self.cost = Cost("cpu")

    def _ran(self, func, args, kwargs, out):
        self.cost.note(self, func, args, kwargs, out)

    def block(self, tensor):
        return tensor.untyped_storage().data_ptr()


def counted(function, *args):
    """Return the Cost of calling a function on a CPU, and its result."""
    with Counting() as counting:
        out = function(*args)
    return counting.cost, out


def flops(function, *args):
    return sum(o.flop for o in counted(function, *args)[0].operations)


def moved(cost):
    """Return the bytes that operations have read and written."""
    parts = zip(*((o.read, o.written) for o in cost.operations))
    return tuple(sum(sum(p.values()) for p in part) for part in parts)


def test_a_linear_layer_by_hand():
    n, width, out = 8, 5, 7
    layer, x = torch.nn.Linear(width, out), torch.ones(n, width, requires_grad=True)
    cost, y = counted(layer, x)
    assert [o.flop for o in cost.operations] == [2 * n * width * out]
    weights = width * out + out
    assert moved(cost) == (4 * (n * width + weights), 4 * n * out)
    cost, _ = counted(y.backward, torch.ones(n, out))
    # Two products, for the gradients of x and of the weights, and a sum, for that of the bias.
    assert sorted(o.flop for o in cost.operations) == [0, 2 * n * width * out, 2 * n * width * out]
    gradients = n * out
    read = 3 * gradients + width * out + n * width
    assert moved(cost) == (4 * read, 4 * (n * width + weights))
    assert cost.totals()["tflop"] == 4 * n * width * out / 1e12
    assert cost.totals()["operations"] == 3


@pytest.mark.parametrize("groups", [1, 4, 8])
def test_a_convolution_by_hand(groups):
    layer, x = torch.nn.Conv2d(8, 16, 3, groups=groups), torch.ones(2, 8, 9, 7, requires_grad=True)
    forward = 2 * (2 * 16 * 7 * 5) * (8 // groups * 3 * 3)
    assert flops(layer, x) == forward
    assert flops(layer(x).sum().backward) == 2 * forward  # the gradients of x, and of the weights


def in_place(x):
    x.add_(1)
    x.zero_()
    x.view(2, -1).t().detach()
    torch.empty(100)
    return x[0].expand(50, 4) + 1


def test_what_is_read_and_written_by_hand():
    cost, _ = counted(in_place, torch.ones(2, 4))
    rows = [(sum(o.read.values()), sum(o.written.values())) for o in cost.operations]
    # Views and empty tensors cost nothing; an expanded row is read once.
    assert rows == [(32, 32), (0, 32), (16, 800)]
    x = torch.ones(4)
    cost, _ = counted(torch.mul, x, x)
    assert moved(cost) == (16, 16)
    table, indices = torch.ones(1000, 4), torch.tensor([1, 2, 2])
    cost, _ = counted(F.embedding, indices, table)
    assert moved(cost) == (3 * 16 + 3 * 8, 3 * 16)
    lists = [[torch.ones(n) for n in (3, 5)] for _ in range(2)]
    cost, _ = counted(torch._foreach_add_, *lists)
    assert moved(cost) == (64, 32) and len(cost.operations) == 1
    # FSDP2 copies a shard into its part of the all-gather buffer.
    copy_in = torch.ops.fsdp.all_gather_copy_in
    cost, _ = counted(copy_in, [torch.ones(3), torch.ones(1)], torch.ones(16), [3, 1], 4, 2)
    assert moved(cost) == (16, 16) and len(cost.operations) == 1
    assert touched(torch.ones(1).expand(3, 2)) == 4 and touched(torch.ones(0, 3)) == 0


def test_a_block_is_counted_as_pytorch_does():
    """Attention on a CPU, which many versions of PyTorch leave out, is counted by hand."""
    block, x = BLOCK, torch.randn(2, 9, 32, requires_grad=True)
    with FlopCounterMode(display=False) as theirs:
        block(x).sum().backward()
    mine = flops(lambda: block(x).sum().backward())
    by_pytorch = theirs.get_flop_counts()["Global"]
    attention = {name: flop for name, flop in by_pytorch.items() if "attention" in str(name)}
    # Two products in the forward pass, five in the backward pass, which repeats one of the two.
    by_hand = (2 + 5) * 2 * (2 * 9) * 9 * 32
    assert mine == theirs.get_total_flops() - sum(attention.values()) + by_hand
    assert not attention or sum(attention.values()) == by_hand


def test_checkpointing_leaves_out_the_last_product():
    x, n, width = torch.randn(2, 9, 32, requires_grad=True), 2 * 9, 32
    plain = flops(lambda: BLOCK(x).sum().backward())
    again = flops(lambda: checkpoint(BLOCK, x, use_reentrant=False).sum().backward())
    products, attention = 24 * n * width**2, 4 * n * 9 * width
    assert again - plain == products + attention - 8 * n * width**2


def test_fsdp_units_by_hand():
    """Each block is gathered twice, the rest once, and every gradient is reduced once.

    Weights are divided by their first dimension, which is padded to a multiple of four.
    """
    records = stored.predictions()
    block = 12 * WIDTH**2 + 13 * WIDTH
    # (rows, values in a row): class token, positions, patches with bias, norm, head with bias
    rest = [(1, 1024), (1, 197 * 1024), (1024, 768), (1024, 1), (1024, 2), (10, 1024), (10, 1)]
    padded = sum(-(-rows // 4) * 4 * n for rows, n in rest)
    mine = sum(-(-rows // 4) * n for rows, n in rest)  # the first process has the first rows
    blocks, shard = BLOCKS * block, BLOCKS * block // 4 + mine
    names = ("08_fsdp/train", "09_act_ckpt/train", "10_offload/train")
    first, sharded, offloaded = (records[name]["cost"] for name in names)
    for cost in (first, sharded, offloaded):
        assert cost["gathered_gb"] * 1e9 == pytest.approx(2 * (2 * blocks + padded), abs=1)
        assert cost["reduced_gb"] * 1e9 == pytest.approx(2 * (blocks + padded), abs=1)
    # At most a few numbers, such as the learning rate of a schedule.
    assert max(sharded[key] for key in ("to_device_gb", "to_host_gb", "moved_on_host_gb")) < 1e-6
    assert offloaded["to_device_gb"] * 1e9 == pytest.approx(2 * (blocks // 2 + mine), abs=1)
    assert offloaded["to_host_gb"] * 1e9 == pytest.approx(2 * shard, abs=1)
    # SGD reads weights and gradients, and writes weights; a few numbers are read, too.
    assert offloaded["moved_on_host_gb"] * 1e9 == pytest.approx(6 * shard, abs=64)
