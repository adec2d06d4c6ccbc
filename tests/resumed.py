"""Trains with a script several times in one start, and stops some of the trainings in the middle.

Usage: python tests/resumed.py N OUT.jsonl SCRIPT TRAININGS
TRAININGS is JSON, a list of [STOP, options]: N processes end a training after update STOP, as
Ctrl-C does; -STOP kills them. 0 is never. OUT.jsonl gets for every update [which training, update,
the losses of all processes], and for every training that was not stopped its record.
"""

import json
import os
import signal
import sys

import torch.distributed as dist

from shared import saving
from shared.metrics import Meter
from shared.records import scripts
from shared.records.running import side_by_side


def main(out, name, trainings):
    """Does what this file is for, as one of the processes."""
    saving.AGREE = 3  # so that a short training has several checkpoints
    progress = Meter.progress
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")  # once for all trainings
        dist.init_process_group = dist.destroy_process_group = lambda *_: None

    def write(what):
        if int(os.environ.get("RANK", 0)) == 0:
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(what) + "\n")

    for i, (stop, options) in enumerate(json.loads(trainings)):

        def watched(meter, *rest):
            for batch in progress(meter, *rest):
                yield batch
                losses = [meter.losses.last.item()] * meter.world_size
                if meter.world_size > 1:
                    dist.all_gather_object(losses, losses[0])
                write([i, meter.steps, losses])
                if meter.steps + 1 == -stop:
                    os.kill(os.getpid(), signal.SIGKILL)
                if meter.steps + 1 == stop:
                    raise KeyboardInterrupt

        Meter.progress = watched
        try:
            write(scripts.get(name).load().main(options))
        except KeyboardInterrupt:
            assert stop


if __name__ == "__main__":
    n, *arguments = sys.argv[1:]
    scripts.get(arguments[1]).load()  # before the forks, so that what it imports is there once
    if int(n) > 1:
        side_by_side(int(n), main, *arguments)
    else:
        main(*arguments)
