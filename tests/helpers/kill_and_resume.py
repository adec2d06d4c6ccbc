"""Train with a script, and kill the run in the middle if asked to.

Usage: python tests/helpers/kill_and_resume.py N OUT.jsonl SCRIPT AT [OPTION...]
N processes kill themselves after update AT, or never if AT is 0. OUT.jsonl gets, for every update,
[update, the losses of all processes], and finally the record.
"""

import json
import os
import signal
import sys

import torch.distributed as dist

from shared.lab.records import scripts
from shared.lab.records.running import side_by_side
from shared.metrics import Meter
from shared.run import saving


def main(out, name, at, *options):
    """Train as one of the processes."""
    saving.AGREE = 3  # so that a short run has several checkpoints
    progress = Meter.progress

    def write(what):
        if int(os.environ.get("RANK", 0)) == 0:
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(what) + "\n")

    def watched(meter, *rest):
        for batch in progress(meter, *rest):
            yield batch
            losses = [meter.losses.last.item()] * meter.args.world_size
            if meter.args.world_size > 1:
                dist.all_gather_object(losses, losses[0])
            write([meter.steps, losses])
            if meter.steps + 1 == int(at):
                os.kill(os.getpid(), signal.SIGKILL)

    Meter.progress = watched
    write(scripts.get(name).load().main(list(options)))


if __name__ == "__main__":
    n, *arguments = sys.argv[1:]
    scripts.get(arguments[1]).load()  # before the forks, so that they share its imports
    if int(n) > 1:
        side_by_side(int(n), main, *arguments)
    else:
        main(*arguments)
