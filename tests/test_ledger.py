"""Promise: the ledger counts the bytes of all tensors exactly."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torchao.optim import Adam8bit
from torchvision.models.vision_transformer import VisionTransformer

from shared.memory.ledger import Ledger
from shared.memory.phases import CountedLedger


def train(model, optimizer, images, labels, ledger, steps=2):
    for _ in range(steps):
        ledger.note(images, "inputs")
        ledger.note(labels, "inputs")
        with ledger:
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()


def test_hand_arithmetic():
    # One layer of 1000 x 500 weights, no bias, batch 8, fp32.
    ledger = Ledger()
    with ledger:
        model = nn.Linear(1000, 500, bias=False)
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    assert ledger.peak("cpu") == (2_000_000, {"parameters": 2_000_000})
    ledger.training()
    images, labels = torch.randn(8, 1000), torch.zeros(8, dtype=torch.long)
    since = len(ledger.events)
    train(model, optimizer, images, labels, ledger)
    peak, parts = ledger.peak("cpu", since)
    assert parts["parameters"] == 2_000_000
    assert parts["gradients"] == 2_000_000
    assert parts["optimizer states"] == 2 * 2_000_000 + 4  # two moments and a step counter
    assert parts["inputs"] == 8 * 1000 * 4 + 8 * 8
    # In Adam's step: sqrt(v) / sqrt(1 - beta2 ** t) + eps, one temporary after the other.
    assert parts["temporaries"] in (2_000_000, 4_000_000)
    assert peak == sum(parts.values())


def test_a_quantized_tensor_is_what_it_consists_of():
    # 1024 x 500 weights; a state has 8 bits for each, a scale per 256, and a table of 256.
    ledger = Ledger()
    with ledger, torch.compiler.set_stance("force_eager"):
        model = nn.Linear(1024, 500, bias=False)
        optimizer = Adam8bit(model.parameters())
        since = len(ledger.events)
        train(model, optimizer, torch.randn(8, 1024), torch.zeros(8, dtype=torch.long), ledger)
    n = 1024 * 500
    state = n + n // 256 * 4 + 256 * 4
    assert ledger.peak("cpu", since)[1]["optimizer states"] == 2 * state + 4  # a step counter
    alive = sum(change for block, change in ledger.events if block.label == "optimizer states")
    assert alive == 2 * state + 4


def test_activations_by_hand():
    # ReLU keeps its result for the backward pass, not its input, which is freed at once.
    ledger = Ledger()
    x = torch.randn(64, 10)
    with ledger:
        first, last = nn.Linear(10, 1000, bias=False), nn.Linear(1000, 1, bias=False)
        ledger.training()
        y = last(first(x).relu())
    hidden = 64 * 1000 * 4  # before and after the ReLU
    assert ledger.peak("cpu")[1] == {"parameters": 11 * 1000 * 4, "activations": 2 * hidden}
    alive = sum(change for block, change in ledger.events if block.label == "activations")
    assert alive == hidden + y.nbytes


def test_freed_and_resized_storages_are_followed_and_a_view_is_no_memory():
    ledger = Ledger()
    with ledger:
        a = torch.zeros(1000)
        views = [a[10:], a.view(10, 100), a.detach(), a[None]]
        a.untyped_storage().resize_(0)
        b = torch.zeros(300)
        a.untyped_storage().resize_(2000)
        del a, views
    changes = [change for _, change in ledger.events if change]
    assert changes == [4000, -4000, b.nbytes, 2000, -2000] and ledger.peak("cpu")[0] == 4000


def test_mapped_files_are_no_memory(tmp_path):
    torch.save({"a": torch.zeros(1000)}, tmp_path / "a.pt")
    read, mapped = Ledger(), Ledger()
    with read:
        state = torch.load(tmp_path / "a.pt", weights_only=True)
    assert read.peak("cpu")[0] == state["a"].nbytes
    with mapped:
        state = torch.load(tmp_path / "a.pt", weights_only=True, mmap=True)
        copy = state["a"].clone()
    assert mapped.peak("cpu")[0] == copy.nbytes


def test_checkpointed_activations_are_recomputed():
    ledger = Ledger()
    x = torch.randn(64, 10, requires_grad=True)
    with ledger:
        block = nn.Sequential(nn.Linear(10, 1000), nn.ReLU(), nn.Linear(1000, 10))
        ledger.training()
        y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        assert sum(change for b, change in ledger.events if b.label == "activations") == y.nbytes
        y.sum().backward()
    assert ledger.peak("cpu")[1]["recomputed"] == 64 * 1000 * 4  # kept by ReLU for its gradient


def test_a_failing_update_leaves_nothing_switched_on():
    def changed():
        return torch.UntypedStorage.resize_, torch.load, torch.optim.Optimizer.add_param_group

    before, ledger = changed(), Ledger()
    with pytest.raises(ZeroDivisionError), ledger:
        1 / 0
    assert changed() == before
    torch.zeros(10)
    assert ledger.events == []


def test_counters_by_hand(monkeypatch):
    """A peak inside an operation, with counters that are written by hand."""
    # (blocks, requested of them), in bytes: the peaks since the reading before.
    peaks = [
        (512, 40),  # before: memory that is no part of the operations
        (512 + 4096, 40 + 4000),  # 1,000 numbers
        (512 + 4096 + 1024 + 9216, 40 + 4000 + 800 + 9000),  # 200 numbers, by a temporary of 9,000
        (512 + 4096 + 1024 + 512, 40 + 4000 + 800 + 40),  # 10 numbers
        (512 + 4096 + 1024 + 512, 40 + 4000 + 800 + 40),  # at the end
        (99_999, 99_999),  # later, and not in an operation
    ]
    readings = iter(peaks)

    def stats(device):
        allocated, requested = ({"all": {"peak": nbytes}} for nbytes in next(readings))
        names = ("allocated_bytes", "requested_bytes", "reserved_bytes")
        return dict(zip(names, (allocated, requested, {"all": {"peak": 2**21}})))

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    ledger = CountedLedger(torch.device("cpu"))
    with ledger:
        kept = [torch.zeros(n) for n in (1000, 200, 10)]
    held = {"temporaries": 4000 + 800, "workspaces": 40 + 9000}
    held["rounding"] = (512 - 40) + (4096 - 4000) + (1024 - 800) + (9216 - 9000)
    assert ledger.breakdown() == held and sum(held.values()) == ledger.allocated == peaks[2][0]
    ledger.read()
    assert (ledger.allocated, ledger.reserved) == (99_999, 2**21)
    assert ledger.breakdown() == held and len(kept) == 3


def allocator_peak(update):
    """Return the peak of the CPU allocator during a function, by the profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        update()
    events = (e for e in found.profiler.kineto_results.events() if e.name() == "[memory]")
    events = sorted(events, key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in events))


def test_agrees_with_the_allocator():
    torch.manual_seed(0)
    model = VisionTransformer(64, 8, 6, 6, 384, 1536, num_classes=10)
    assert sum(p.nbytes for p in model.parameters()) > 40e6
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    images, labels = torch.randn(8, 3, 64, 64), torch.zeros(8, dtype=torch.long)
    ledger = Ledger()
    ledger.training()
    train(model, optimizer, images, labels, ledger, steps=1)

    def update():
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    since, start = len(ledger.events), sum(change for _, change in ledger.events)
    with ledger:
        update()
    counted = ledger.peak("cpu", since)[0] - start
    assert counted == pytest.approx(allocator_peak(update), rel=0.01)
