"""A lower bound on the time of an update on a given device, if tensors go through its memory.

Each operation takes at least as long as its arithmetic at the device's highest rate, as moving its
bytes to and from memory, and as sending them to other devices or the host. Operations of one stream
run one after the other. Streams run concurrently, and communication between devices has its own
stream; the longest stream bounds the update. Launching operations, synchronization, and computation
on the host are not included, so real runs take longer.
"""

import collections

RESOURCES = ("arithmetic", "memory", "other GPUs", "host link")


def bound(operations, rates):
    """Return the lower bound on the time of a Cost's operations, as a record's Bound."""
    between = rates.gpus or rates.host  # without links of their own, GPUs exchange through the host
    streams = collections.defaultdict(collections.Counter)  # by stream and resource, in ms
    for o in operations:
        times = (
            o.flop / rates.flops(o.kind) * 1e3,
            (sum(o.read.values()) + sum(o.written.values())) / rates.memory / 1e6,
            o.received / between / 1e6,
            max(o.to_device, o.to_host) / rates.host / 1e6,
        )
        longest = max(times)
        streams[o.stream][RESOURCES[times.index(longest)]] += longest
    # Streams run concurrently, so the longest one decides.
    longest = max(streams, key=lambda stream: streams[stream].total())
    parts = streams.pop(longest)
    beside = sum(streams.values(), collections.Counter())
    return {
        "ms": parts.total(),
        "by": max(parts, key=parts.get),
        "parts_ms": {name: parts[name] for name in RESOURCES if parts[name]},
        "beside_ms": {name: beside[name] for name in RESOURCES if beside[name]},
    }
