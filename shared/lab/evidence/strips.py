"""The share of each millisecond in which a GPU is busy during an update, by micro-batches.

lessons/strips.py draws the records. The host is as fast as that of the measured GPU, whose speeds
stand beside the picture.
"""

import dataclasses
import math

from shared.images.cli import TASK
from shared.lab.predict.stage import predict_work
from shared.lab.records import measured
from shared.run import record

BIN_MS = 1


def shares(pieces):
    """Return the share of each BIN_MS in which the GPU is busy, in order, from pieces of work."""
    busy_ms = [0.0] * math.ceil(max(end for _, end in pieces) / BIN_MS)
    for begin, end in pieces:
        for place in range(int(begin / BIN_MS), math.ceil(end / BIN_MS)):
            since, until = place * BIN_MS, (place + 1) * BIN_MS
            busy_ms[place] += min(end, until) - max(begin, since)
    return [round(ms / BIN_MS, 3) for ms in busy_ms]


def work(case):
    """Return the record of the last update of a case; run it in a process of its own."""
    settings = dataclasses.replace(case.settings, host_us=measured.LAUNCH_US)
    pieces = predict_work(case.changed_script, settings)
    entry = {
        "script": case.script,
        "card": settings.card.title,
        "launch_us": settings.host_us,
        "batch_size": settings.batch_size,
        "micro_batch_size": settings.micro_batch_size,
        "ms": max(end for _, end in pieces),
        "started": len(pieces),
        "bin_ms": BIN_MS,
        "busy": shares(pieces),
    }
    return record.new(TASK, **entry)
