"""Runs a script that keeps its losses, and that can be killed in the middle.

Usage: python tests/resumed.py N KILL_AT OUT.jsonl SCRIPT [OPTION...]
N processes run the script; after as many updates as KILL_AT says, all of them are killed (0 is
never). Every update appends its number and its loss to OUT.jsonl, the end a record.
"""

import json
import os
import signal
import sys

import torch.distributed as dist
from forks import side_by_side

from shared import saving
from shared.common import scripts
from shared.metrics import Meter

saving.AGREE = 4  # so that a short training has several checkpoints


def work(kill_at, out, name, *options):
    """Does what this file is for, as one of the processes."""
    script, update = scripts.get(name).load(), Meter.update

    def write(what):
        if int(os.environ.get("RANK", 0)) == 0:
            with open(out, "a") as file:
                file.write(json.dumps(what) + "\n")

    def watched(meter, loss, logits, labels):
        update(meter, loss, logits, labels)
        losses = [loss.item()]
        if meter.world_size > 1:
            losses = [None] * meter.world_size
            dist.all_gather_object(losses, loss.item())
        write([meter.steps, losses])
        if meter.steps + 1 == int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

    Meter.update = watched
    write(script.main(options))


if __name__ == "__main__":
    n, *arguments = sys.argv[1:]
    if int(n) > 1:
        side_by_side(int(n), work, *arguments)
    else:
        work(*arguments)
