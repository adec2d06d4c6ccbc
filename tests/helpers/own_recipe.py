"""Train with the lines of page 08 to copy; what they leave to the reader is here.

Usage: python tests/helpers/own_recipe.py N EPOCHS [DIE] [OLD=>NEW...]
N processes train in the current folder; with 0, torchrun has started this one. Rank 0 prints the
mean loss and the norm of the gradients of every update. In epoch DIE (0: never), the last process
kills itself, unless torchrun has started it again. OLD=>NEW replaces a part of the lines.
"""

import os
import re
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn import utils
from torch.utils.data import TensorDataset

PAGE = Path(__file__).resolve().parents[2] / "08_fsdp" / "README.md"
UPDATES, BATCH_SIZE = 3, 12  # per epoch; examples per update


class Net(torch.nn.Module):
    """A small network whose tensors, of 33 rows, can be divided by three processes only."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 33), torch.nn.Linear(33, 10)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(33, 33) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x).relu()
        return self.last(x)


def write_weights(folder):
    """Write the file of initial weights."""
    torch.manual_seed(0)
    torch.save(Net().state_dict(), folder / "weights.pt")


def examples():
    """Return the examples of an epoch, the same in every process."""
    n, numbers = BATCH_SIZE * UPDATES, torch.Generator().manual_seed(0)
    labels = torch.randint(10, (n,), generator=numbers)
    return TensorDataset(torch.randn(n, 64, generator=numbers), labels)


def lines_of_page():
    """Return the code in page 08's section "In your own script", imports first."""
    section = PAGE.read_text().split("## In your own script\n")[1].split("\n## ")[0]
    lines, imports = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return imports + lines


def main(epochs, die=0, *changes):
    """Train as one of the processes."""
    code = lines_of_page()
    for old, new in (change.split("=>") for change in changes):
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    cross_entropy, clip_grad_norm_ = F.cross_entropy, utils.clip_grad_norm_
    last_update = UPDATES * int(die)  # of the epoch in which a process dies

    def watched_loss(logits, labels):
        nonlocal last_update
        last_update -= 1
        rank, n = dist.get_rank(), dist.get_world_size()
        again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
        if last_update == 0 and rank == n - 1 and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = cross_entropy(logits, labels)
        mean = loss.detach() / n
        dist.all_reduce(mean)
        say("loss", mean)
        return loss

    def watched_clip(*arguments):
        norm = clip_grad_norm_(*arguments)
        say("norm", norm.full_tensor())

    F.cross_entropy, utils.clip_grad_norm_ = watched_loss, watched_clip
    given = {"make_model": Net, "examples": examples(), "LR": 0.01, "BATCH_SIZE": BATCH_SIZE}
    exec(compile(code, PAGE, "exec"), {**given, "EPOCHS": int(epochs)})


def say(what, value):
    """Print a value of an update, as rank 0."""
    if dist.get_rank() == 0:
        print(f"{what} {value.item()!r}", flush=True)


if __name__ == "__main__":
    n, *arguments = sys.argv[1:]
    if int(n):
        from shared.lab.records.running import side_by_side  # not for torchrun's: it imports Fabric

        side_by_side(int(n), main, *arguments)
    else:
        main(*arguments)
