"""Promise: what the caching allocator would reserve follows its policy, and nothing gets lost."""

import random

from shared.predict import allocator

MIB = 2**20


def test_allocator_rounds_and_splits():
    a = allocator.CachingAllocator()
    one = a.allocate(1)
    assert (one.size, a.reserved) == (512, 2 * MIB)
    a.allocate(MIB)  # beside it, in the same segment
    assert a.reserved == 2 * MIB
    a.allocate(MIB)  # 512 bytes too large for what is left
    assert a.reserved == 4 * MIB
    large = a.allocate(MIB + 1)  # from a segment of 20 MiB
    assert a.reserved == 24 * MIB
    # More than 10 MiB, and than what is left there: a segment of its own, a multiple of 2 MiB.
    own = a.allocate(19 * MIB)
    assert a.reserved == 44 * MIB
    assert own.size == 20 * MIB  # a rest of 1 MiB or less is not cut off
    a.allocate(19 * MIB - 512)  # just what is left of the first
    assert a.reserved == 44 * MIB
    a.free(large)
    assert a.allocate(MIB + 1) is large and a.reserved == 44 * MIB


def test_allocator_gives_back_what_is_idle():
    a = allocator.CachingAllocator()
    pieces = [a.allocate(5 * MIB) for _ in range(4)]
    assert a.reserved == 20 * MIB
    for piece in pieces[:3]:
        a.free(piece)
    a.empty_cache()
    assert a.reserved == 20 * MIB  # one is in use
    a.free(pieces[3])
    assert [p.size for p in a.pools[0][1]] == [20 * MIB]  # joined again
    a.empty_cache()
    assert a.reserved == 0 and a.peak == 20 * MIB


def test_allocator_loses_nothing():
    rng = random.Random(0)
    a, live = allocator.CachingAllocator(), []
    for _ in range(3000):
        if live and rng.random() < 0.48:
            a.free(live.pop(rng.randrange(len(live))))
        else:
            live.append(a.allocate(int(10 ** rng.uniform(0, 8))))
        idle = [p for pools in a.pools.values() for pool in pools for p in pool]
        assert sum(p.size for p in live + idle) == a.reserved <= a.peak
        assert not any(p.idle for p in live)
    spans = sorted((p.address, p.size) for p in live + idle)
    assert all(x + size <= y for (x, size), (y, _) in zip(spans, spans[1:]))  # nowhere two at once
    for p in live:
        a.free(p)
    a.empty_cache()
    assert a.reserved == 0


def test_allocator_keeps_streams_apart():
    a = allocator.CachingAllocator()
    a.free(a.allocate(15 * MIB))
    a.allocate(15 * MIB, stream=1)
    assert a.reserved == 32 * MIB
    a.allocate(15 * MIB)
    assert a.reserved == 32 * MIB
    a.empty_cache()
    assert a.reserved == 32 * MIB
