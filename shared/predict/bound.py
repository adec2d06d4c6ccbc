"""The least time of an update on a given device, if tensors go through its memory.

Each operation takes at least as long as its arithmetic at the device's highest rate, as moving its
bytes to and from memory, and as sending them to other devices or the host. Operations of one stream
run one after the other. Streams run concurrently, and communication between devices has one of its
own; the longest stream bounds the update. Launching operations, synchronization, and computation on
the host are not included, so real runs take longer.

Small tensors may not go through memory, but stay in the L2 cache. So a second figure assumes a
cache of the most recently used storages, as many as fit: reading them takes no time, and one that
is freed soon enough is never written to memory.
"""

import collections
import dataclasses

RESOURCES = ("arithmetic", "memory", "other GPUs", "host link")


class Cache:
    """An L2 cache of whole storages; the least recently used are evicted first."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self._held, self._full = collections.OrderedDict(), 0  # {name: (bytes, whether changed)}

    def use(self, name, nbytes, changed):
        """Return the bytes moved between cache and memory when a storage is read or changed."""
        before, was_changed = self._held.pop(name, (0, False))
        self._full -= before
        if nbytes > self.nbytes:
            return nbytes
        moved = 0 if before or changed else nbytes
        self._held[name] = max(before, nbytes), changed or was_changed
        self._full += max(before, nbytes)
        while self._full > self.nbytes:
            _, (size, to_write) = self._held.popitem(last=False)
            self._full -= size
            moved += size * to_write
        return moved

    def free(self, name):
        self._full -= self._held.pop(name, (0, False))[0]


def bound(operations, rates):
    """Return the least time of a Cost's operations, as a record's Bound."""
    found = _bound(operations, dataclasses.replace(rates, cache=0))
    return {**found, "in_cache_ms": _bound(operations, rates)["ms"]}


def _bound(operations, rates):
    cache, between = Cache(rates.cache * 2**20), rates.gpus or rates.host
    streams = collections.defaultdict(collections.Counter)  # by stream and resource, in ms
    for o in operations:
        for name in o.freed:
            cache.free(name)
        moved = sum(cache.use(*read, False) for read in o.read.items())
        moved += sum(cache.use(*written, True) for written in o.written.items())
        times = (
            o.flop / rates.flops(o.kind) * 1e3,
            moved / rates.memory / 1e6,
            o.received / between / 1e6,
            max(o.to_device, o.to_host) / rates.host / 1e6,
        )
        longest = max(times)
        streams[o.stream][RESOURCES[times.index(longest)]] += longest
    longest = max(streams, key=lambda stream: streams[stream].total())
    parts = streams.pop(longest)
    beside = sum(streams.values(), collections.Counter())
    return {
        "ms": parts.total(),
        "by": max(parts, key=parts.get),
        "parts_ms": {name: parts[name] for name in RESOURCES if parts[name]},
        "beside_ms": {name: beside[name] for name in RESOURCES if beside[name]},
    }
