"""Train with 08_fsdp/own_script.py, and print what it does not.

Usage: python tests/helpers/own_recipe.py N EPOCHS [DIE] [OLD=>NEW...]
N processes train in the current folder; with 0, torchrun has started this one. Rank 0 prints the
mean loss and the norm of the gradients of every update. In epoch DIE (0: never), the last process
kills itself, unless torchrun has started it again. OLD=>NEW replaces a part of the script.
"""

import os
import signal
import sys
import types
from pathlib import Path

import torch
import torch.distributed as dist

SCRIPT = Path(__file__).resolve().parents[2] / "08_fsdp" / "own_script.py"
UPDATES = 3  # per epoch


def load(*changes):
    """Return the script as a module, with each OLD=>NEW replaced."""
    code = SCRIPT.read_text()
    for old, new in (change.split("=>") for change in changes):
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    module = types.ModuleType("own_script")
    exec(compile(code, SCRIPT, "exec"), vars(module))
    return module


def write_weights(folder):
    """Write the file of initial weights."""
    script = load()
    torch.manual_seed(0)
    torch.save(script.Model().state_dict(), folder / script.WEIGHTS)


def main(epochs, die=0, *changes):
    """Train as one of the processes."""
    script = load(*changes)
    cross_entropy, clip_grad_norm_ = script.F.cross_entropy, script.clip_grad_norm_
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

    script.F.cross_entropy, script.clip_grad_norm_ = watched_loss, watched_clip
    script.EPOCHS = int(epochs)
    script.main()


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
