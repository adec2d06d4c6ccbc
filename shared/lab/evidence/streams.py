"""Work of a GPU over time: of the stages that use several streams, and of micro-batches.

Of the first, the pieces of work of the last update are stored, beside a fast host; for pictures in
lessons/streams.py. Of the second, how busy the GPU is beside a host as fast as that of the measured
one; for the picture in lessons/strips.py.
"""

import math

from emulated_gpu.cards import CARDS
from shared import record
from shared.cli import Parser
from shared.images.cli import TASK
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict_work
from shared.lab.records import measured, stored

SHOWN = "08_fsdp/train", "10_offload/train"
LAUNCH_US = 5  # that the host takes to start a piece of work: so the GPU sets the pace
GAP_MS = 0.02  # pieces of a stream that are closer than this are stored as one
KINDS = ("product", "kernel", "send", "copy")  # of work
# 06 was measured with these: images per update, and in a micro-batch. Each has four micro-batches.
MICRO_BATCHES = ((16, 4), (64, 16), (128, 32))
IN_BATCHES = "06_sgd/train"
BIN_MS = 1


def joined(pieces):
    """Return pieces of work, [kind, stream, begin, end in ms], with neighbors of a kind joined."""
    whole = []
    last = {}  # {stream: piece}
    for kind, stream, begin, end in pieces:
        before = last.get(stream)
        if before and before[0] == kind and begin - before[3] < GAP_MS:
            before[3] = end
        else:
            last[stream] = [kind, stream, begin, end]
            whole.append(last[stream])
    # A microsecond is less than a pixel of the picture.
    return [[kind, stream, round(a, 3), round(b, 3)] for kind, stream, a, b in whole]


def busy(pieces):
    """Return the milliseconds of work by kind, {kind: ms}."""
    return {kind: sum(b - a for k, _, a, b in pieces if k == kind) for kind in KINDS}


def shares(pieces):
    """Return the share of each BIN_MS in which the GPU is busy, in order, for one stream."""
    busy_ms = [0.0] * math.ceil(max(end for *_, end in pieces) / BIN_MS)
    for *_, begin, end in pieces:
        for place in range(int(begin / BIN_MS), math.ceil(end / BIN_MS)):
            since, until = place * BIN_MS, (place + 1) * BIN_MS
            busy_ms[place] += min(end, until) - max(begin, since)
    return [round(ms / BIN_MS, 3) for ms in busy_ms]


def in_batches():
    """Return the entries of MICRO_BATCHES."""
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
    entries = []
    for options, pieces in zip(wanted, run_jobs([(predict_work, IN_BATCHES, w) for w in wanted])):
        entry = {
            "script": IN_BATCHES,
            "card": options.card.title,
            "launch_us": options.host_us,
            "batch_size": options.batch_size,
            "micro_batch_size": options.micro_batch_size,
            "ms": max(end for *_, end in pieces),
            "started": len(pieces),
            "bin_ms": BIN_MS,
            "busy": shares(pieces),
        }
        entries.append({**record.new(TASK, **entry)})
    return entries


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    options = Wanted("full", host_us=LAUNCH_US)
    jobs = [(predict_work, name, options) for name in SHOWN]
    entries = in_batches()
    for name, pieces in zip(SHOWN, run_jobs(jobs)):
        entry = {
            "script": name,
            "card": options.card.title,
            "launch_us": LAUNCH_US,
            "ms": max(end for *_, end in pieces),
            "busy_ms": busy(pieces),
            "started": len(pieces),  # before pieces are joined: each was started
        }
        entries.append({**record.new(TASK, **entry), "pieces": joined(pieces)})
    stored.write(stored.STREAMS, entries)
    print(f"{stored.STREAMS.name}: {len(entries)} records")
