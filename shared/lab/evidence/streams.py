"""Work of a GPU's streams: run the stages that use several, beside a fast host.

The pieces of work of their last update are stored; lessons/streams.py draws them.
"""

from shared import record
from shared.cli import Parser
from shared.images.cli import TASK
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict_work
from shared.lab.records import stored

SHOWN = "08_fsdp/train", "09_act_ckpt/train", "10_offload/train"
LAUNCH_US = 5  # that the host takes to start a piece of work: so the GPU sets the pace
GAP_MS = 0.02  # pieces of a stream that are closer than this are stored as one
KINDS = ("product", "kernel", "send", "copy")  # of work


def joined(pieces):
    """Return pieces of work, [kind, stream, begin, end], those of a kind without gaps as one."""
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


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    options = Wanted("full", host_us=LAUNCH_US)
    jobs = [(predict_work, name, options) for name in SHOWN]
    entries = []
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
