"""An estimate of the time of an update on a GPU, beside the lower bound.

Work takes longer than at the highest rates, by a factor for each kind of it:

- products: matrix products and convolutions that take longer to compute than to move their bytes;
- layout: the bytes of convolutions and of batch norm, which cuDNN moves several times, to convert
  layouts and to compute means before it uses them;
- memory: the bytes of all else;
- links: bytes from other GPUs and from or to the host.

The first three factors follow from published speeds, by least squares of the relative error:
`python -m shared published --stored` prints them, and how near they come to other
published speeds. That of links is an assumption, the same as the emulator's.
As in bound.py, streams run concurrently, and what the host does is not in it.
"""

import collections

from shared.lab.predict.bound import bound

FACTORS = {"products": 1.07, "layout": 2.95, "memory": 1.37, "links": 1.25}


def work(operations, rates):
    """Return what the work of the longest stream takes at the highest rates, {kind: ms}.

    Args:
        operations: those of a Cost.
        rates: emulator.cards.Rates.
    """
    between = rates.gpus or rates.host
    streams = collections.defaultdict(lambda: dict.fromkeys(FACTORS, 0))
    for o in operations:
        stream = streams[o.stream]
        products = o.flop / rates.flops(o.kind) * 1e3
        memory = (sum(o.read.values()) + sum(o.written.values())) / rates.memory / 1e6
        links = max(o.received / between, max(o.to_device, o.to_host) / rates.host) / 1e6
        # cuDNN converts layouts before and after it computes, so both times add up; in other
        # operations arithmetic, memory and links overlap, and the longest one counts.
        if o.layout:
            stream["products"] += products
            stream["layout"] += memory
        else:
            times = {"products": products, "memory": memory, "links": links}
            kind = max(times, key=times.get)
            stream[kind] += times[kind]
    return max(streams.values(), key=estimate)


def times(operations, rates):
    """Return the fields of a record about the time that a Cost's operations take."""
    return {"bound": bound(operations, rates), "work_ms": work(operations, rates)}


def estimate(work_ms):
    """Return the estimated milliseconds of what work() returned."""
    return sum(FACTORS[kind] * ms for kind, ms in work_ms.items())
