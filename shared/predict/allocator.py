"""PyTorch's caching allocator for a CUDA device, simulated without a device.

The allocator requests segments from the driver, splits them into blocks, and keeps them when the
tensors are freed. So what it has reserved, and what nvidia-smi shows, exceeds what is allocated:
sizes are rounded up, and nothing fits in some gaps. These are its policies with default settings
and under expandable_segments:True. Sources: `c10/cuda/CUDACachingAllocator.cpp` in PyTorch;
https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

import bisect
import collections
import dataclasses
import itertools
import os

MIB = 1 << 20
ROUND = 512  # bytes; every block is a multiple of this
# Blocks of at most SMALL bytes come from segments of 2 MiB, which hold no larger blocks.
SMALL = MIB
# Larger blocks of less than LARGE bytes come from segments of 20 MiB. The largest blocks each get a
# segment of their own, a multiple of 2 MiB.
LARGE = 10 * MIB
RANGE = 10 << 50  # addresses of an expandable segment: more than the bytes of any GPU

VARIABLE, GROW = "PYTORCH_ALLOC_CONF", "expandable_segments:True"


class OutOfMemory(Exception):
    """More is needed than the limit, even after giving all idle segments back."""


class Pool(list):
    """The idle pieces of one stream and kind of segment, smallest first."""

    def __init__(self, page):
        self.page = page  # bytes of a segment; an expandable one grows in steps of this
        # For an expandable segment, the ranges of addresses without memory, in order.
        self.gaps = [Piece(RANGE, 0, self)]


@dataclasses.dataclass(slots=True, eq=False)
class Piece:
    """A part of a segment, in use or idle."""

    size: int  # in bytes, like the address
    address: int
    pool: Pool
    before: "Piece | None" = None  # its neighbors in the segment
    after: "Piece | None" = None
    idle: bool = False  # whether it is in the pool

    def __lt__(self, other):
        return (self.size, self.address) < (other.size, other.address)


class CachingAllocator:
    """The caching allocator of one device; `reserved` and its `peak` are in bytes."""

    def __init__(self, limit=None):
        """Begin with nothing reserved; never reserve more than `limit` bytes, if there is one."""
        # For each stream, the pools of small and of large blocks. Streams do not share pieces.
        self.pools = collections.defaultdict(lambda: (Pool(2 * MIB), Pool(20 * MIB)))
        self.reserved = self.peak = self.top = 0
        self.limit = limit

    def allocate(self, nbytes, stream=0):
        """Return the piece for a tensor: the smallest idle one that it fits in, or a new one.

        Give idle segments back before more than the limit is reserved. Raise OutOfMemory if that is
        not enough.
        """
        size = max(ROUND, -(-nbytes // ROUND) * ROUND)
        pool = self.pools[stream][size > SMALL]
        if not (piece := self._fitting(size, pool)):
            try:
                piece = self._new(size, pool)
            except OutOfMemory:
                self.empty_cache()
                piece = self._new(size, pool)
        piece.idle = False
        rest = piece.size - size
        if rest >= self._least_rest(size):
            after = Piece(rest, piece.address + size, pool, piece, piece.after)
            if piece.after:
                piece.after.before = after
            piece.size, piece.after = size, after
            self.free(after)
        return piece

    def free(self, piece):
        """Take a piece back, and merge it with idle neighbors."""
        for neighbor in (piece.after, piece.before):
            if neighbor and neighbor.idle:
                _remove(neighbor)
                first, second = (piece, neighbor) if neighbor is piece.after else (neighbor, piece)
                first.size += second.size
                first.after = second.after
                if first.after:
                    first.after.before = first
                piece = first
        _keep(piece)

    def empty_cache(self):
        """Give the segments back in which nothing is in use, as torch.cuda.empty_cache() does."""
        for pool in itertools.chain(*self.pools.values()):
            whole = [piece for piece in pool if not piece.before and not piece.after]
            pool[:] = [piece for piece in pool if piece.before or piece.after]
            self.reserved -= sum(piece.size for piece in whole)

    def _fitting(self, size, pool):
        i = bisect.bisect_left(pool, Piece(size, -1, pool))
        return pool.pop(i) if i < len(pool) else None

    def _least_rest(self, size):
        return ROUND if size <= SMALL else SMALL + 1

    def _new(self, size, pool):
        nbytes = pool.page if size < LARGE else -(-size // (2 * MIB)) * 2 * MIB
        self._reserve(nbytes)
        self.top += nbytes
        return Piece(nbytes, self.top - nbytes, pool)

    def _reserve(self, nbytes):
        if self.limit is not None and self.reserved + nbytes > self.limit:
            raise OutOfMemory
        self.reserved += nbytes
        self.peak = max(self.peak, self.reserved)


class ExpandableAllocator(CachingAllocator):
    """The caching allocator under expandable_segments:True.

    Each pool has one segment, a range of addresses, which gets memory in pages where it is needed.
    """

    def empty_cache(self):
        """Give all pages back in which nothing is in use."""
        for pool in itertools.chain(*self.pools.values()):
            for piece in [*pool]:
                start, end = piece.address, piece.address + piece.size
                first, last = -(-start // pool.page) * pool.page, end // pool.page * pool.page
                if first < last:
                    self.reserved -= last - first
                    run = [p for p in (piece.before, piece, piece.after) if _gap(p) or p is piece]
                    last = run[-1].address + run[-1].size if _gap(run[-1]) else last
                    gap = (run[0].address if _gap(run[0]) else first), last, False
                    _replace(run, (start, first, True), gap, (last, end, True))

    def _fitting(self, size, pool):
        i = bisect.bisect_left(pool, Piece(size, -1, pool))
        # A piece that can grow counts with the size that it can grow to.
        while i + 1 < len(pool) and _room(pool[i + 1]) < _room(pool[i]):
            i += 1
        return pool.pop(i) if i < len(pool) else None

    def _least_rest(self, size):
        return ROUND

    def _new(self, size, pool):
        for gap in pool.gaps:  # the first that is large enough together with idle neighbors
            run = [gap.before, gap] if gap.before and gap.before.idle else [gap]
            while (short := size - sum(p.size for p in run)) > 0 and _unused(run[-1].after):
                run.append(run[-1].after)
            if short <= 0:
                break
        # The last gap gives only as many pages as are missing.
        left = -short // pool.page * pool.page if _gap(run[-1]) else 0
        self._reserve(sum(p.size for p in run if _gap(p)) - left)
        end = run[-1].address + run[-1].size
        piece, *_ = _replace(run, (run[0].address, end - left, True), (end - left, end, False))
        pool.remove(piece)
        return piece


def _gap(piece):
    return piece is not None and piece in piece.pool.gaps


def _unused(piece):
    return _gap(piece) or piece is not None and piece.idle


def _room(piece):
    return piece.size + (piece.after.size if _gap(piece.after) else 0)


def _remove(piece):
    piece.idle = False
    piece.pool.pop(bisect.bisect_left(piece.pool, piece))


def _keep(piece):
    piece.idle = True
    bisect.insort(piece.pool, piece)


def _replace(run, *parts):
    """Replace adjacent pieces by (start, end, whether there is memory); return the new pieces."""
    pool, before, after, made = run[0].pool, run[0].before, run[-1].after, []
    for piece in run:
        pool.gaps.remove(piece) if _gap(piece) else _remove(piece)
    for start, end, mapped in parts:
        if start < end:
            piece = Piece(end - start, start, pool, before)
            if before:
                before.after = piece
            made.append(piece)
            before = piece
            _keep(piece) if mapped else pool.gaps.append(piece)
    before.after = after
    if after:
        after.before = before
    pool.gaps.sort(key=lambda gap: gap.address)
    return made


def expandable():
    """Return whether the environment asks for expandable segments, by either variable."""
    return any(GROW in os.environ.get(name, "") for name in (VARIABLE, "PYTORCH_CUDA_ALLOC_CONF"))


class Replay:
    """A replay of a ledger's log on one device, with PyTorch's counters.

    `allocated` and `peak` are bytes of blocks; the allocator counts the reserved bytes. `events` is
    the log with the sizes of the device's blocks. PyTorch counts these: a remainder of up to 1 MiB
    of a large block is not split off.
    """

    def __init__(self, device, expandable=False, limit=None):
        self.device, self.events = device, []
        self.allocator = (ExpandableAllocator if expandable else CachingAllocator)(limit)
        self.allocated = self.peak = 0
        self._pieces = {}

    def take(self, block, change):
        """Process an event."""
        if block.device == self.device and block.nbytes:
            if change > 0:
                self._pieces[block] = piece = self.allocator.allocate(change, block.stream)
                change = piece.size
            else:
                piece = self._pieces.pop(block)
                change = -piece.size
                self.allocator.free(piece)
            self.allocated += change
            self.peak = max(self.peak, self.allocated)
        self.events.append((block, change))

    def reset(self):
        """Reset the peaks to the current values."""
        self.peak, self.allocator.peak = self.allocated, self.allocator.reserved


def replay(events, device, since=0, until=None, emptied=(), expandable=False, limit_gb=None):
    """Replay a ledger's log; empty the cache at event `since`, and at those in `emptied`.

    Return a Replay with the peaks of the part from `since` on; None if the limit is too low.
    """
    replayed = Replay(device, expandable, limit_gb and int(limit_gb * 1e9))
    for i, event in enumerate(events[:until]):
        if i == since or i in emptied:
            replayed.allocator.empty_cache()
        if i == since:
            replayed.reset()
        try:
            replayed.take(*event)
        except OutOfMemory:
            return None
    return replayed
