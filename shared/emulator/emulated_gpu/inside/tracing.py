"""A trace of the work that GPUs were given, to look at in https://ui.perfetto.dev.

Its form is that of Chrome's traces, which torch.profiler writes, too.
"""

import json
import os

from emulated_gpu.inside import library


def begin():
    """Log the work of this process, if a trace is wanted."""
    if log := _log():
        library.log_work(os.fsencode(log))


def write(rank):
    """Write the trace of this process, if one is wanted; of other ranks it ends in ".rank1"."""
    if not _log() or not os.path.exists(_log()):  # a fork has none
        return
    library.work_count()  # which completes the log
    streams, events = {}, []
    with open(_log()) as log:
        for line in log:
            kind, stream, begin, end = line.split()
            begin_us, dur_us = int(begin) / 1e3, (int(end) - int(begin)) / 1e3
            lane = streams.setdefault(stream, len(streams))
            event = {"name": kind, "ph": "X", "ts": begin_us, "dur": dur_us}
            events.append({**event, "pid": rank, "tid": lane})
    file = os.environ["EMULATED_TRACE"]
    with open(f"{file}.rank{rank}" if rank else file, "w") as out:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, out)


def _log():
    """Return the path of this process's log, None without a trace."""
    if "EMULATED_TRACE" not in os.environ:
        return None
    return os.path.join(os.environ["EMULATED_REPORTS"], f"{os.getpid()}.work")
