"""Memory that PyTorch's allocators take: rounding, splitting, limits, pinned memory, loading."""

import os
import tempfile
from pathlib import Path

import torch
from torch import nn

from proof.programs.counters import asked, peak


def take(mib):
    """Allocate some MiB."""
    return torch.empty(int(mib * 2**20), dtype=torch.uint8, device="cuda")


def cycles():
    """Return what is reserved after cycles of blocks, two that go and one that stays.

    The row sets expandable_segments and max_split_size_mb. After cycles 0, 20, ..., 80 the report
    has 220, 2980, 5760, 8520 and 11300 MiB; before them, 64 MiB were there.
    """
    kept = [take(64)]
    for _ in range(101):
        large, middle = take(91), take(45.5)
        kept.append(take(2))
        del large, middle
    return torch.cuda.memory_reserved()


def one_block():
    """Return what 514 MiB take; the row sets roundup_power2_divisions."""
    data = take(514)  # noqa: F841, it shall be there when the counter is read
    return torch.cuda.memory_allocated()


def pinned():
    """Return the pinned memory that PyTorch holds, which comes in powers of two."""
    torch.cuda.init()
    weights = torch.empty(4_347_592_704, dtype=torch.float16, pin_memory=True)  # noqa: F841
    return torch.cuda.host_memory_stats()["allocated_bytes.peak"]


def fraction():
    """Ask for 100 MiB under a limit of as much, beside ResNet-18, which fits under it."""
    from torchvision.models import resnet18

    limit = 100 * 2**20
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total)
    model = resnet18(weights=None).cuda()  # noqa: F841
    return asked(lambda: take(100))


def load_checkpoint(device="cuda"):
    """Read a checkpoint onto the GPU where the model already is, or onto the host."""
    layers = [nn.Linear(4096, 4096, bias=False) for _ in range(60)]
    model = nn.Sequential(*layers, nn.Linear(4096, 2624, bias=False))
    path = Path(tempfile.mkdtemp(), "weights.pt")
    torch.save(model.state_dict(), path)
    model.cuda()
    weights = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(weights)
    os.remove(path)
    return peak()
