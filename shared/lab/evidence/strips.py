"""Records of how busy a GPU is during an update, with micro-batches of several sizes.

lessons/strips.py draws them. The host is as fast as that of the measured GPU, whose speeds stand
beside the picture.
"""

import math

from emulated_gpu.cards import CARDS
from shared.images.cli import TASK
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict_work
from shared.lab.records import measured, scripts, stored
from shared.run import record
from shared.run.cli import Parser

# 06 was measured with these: images per update, and in a micro-batch. Each has four micro-batches.
MICRO_BATCHES = ((16, 4), (64, 16), (128, 32))
IN_BATCHES = "06_sgd/train"
BIN_MS = 1


def shares(pieces):
    """Return the share of each BIN_MS in which the GPU is busy, in order, from pieces of work."""
    busy_ms = [0.0] * math.ceil(max(end for _, end in pieces) / BIN_MS)
    for begin, end in pieces:
        for place in range(int(begin / BIN_MS), math.ceil(end / BIN_MS)):
            since, until = place * BIN_MS, (place + 1) * BIN_MS
            busy_ms[place] += min(end, until) - max(begin, since)
    return [round(ms / BIN_MS, 3) for ms in busy_ms]


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    # The card and the pace of the host of the measurements that stand beside the picture.
    wanted = [
        Wanted(
            "full",
            card=CARDS["h200"],
            host_us=measured.LAUNCH_US,
            batch_size=batch_size,
            micro_batch_size=size,
        )
        for batch_size, size in MICRO_BATCHES
    ]
    script = scripts.get(IN_BATCHES)
    entries = []
    for options, pieces in zip(wanted, run_jobs([(predict_work, script, w) for w in wanted])):
        entry = {
            "script": IN_BATCHES,
            "card": options.card.title,
            "launch_us": options.host_us,
            "batch_size": options.batch_size,
            "micro_batch_size": options.micro_batch_size,
            "ms": max(end for _, end in pieces),
            "started": len(pieces),
            "bin_ms": BIN_MS,
            "busy": shares(pieces),
        }
        entries.append({**record.new(TASK, **entry)})
    stored.write(stored.STRIPS, entries)
    print(f"{stored.STRIPS.name}: {len(entries)} records")
