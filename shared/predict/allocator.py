"""What PyTorch's caching allocator reserves on a CUDA device, computed without a device.

The allocator asks the driver for segments, cuts them into blocks, and keeps them when the tensors
are gone. So what it has reserved, and what nvidia-smi shows, is more than what is allocated: sizes
are rounded up, and there are gaps that nothing fits in. This is its policy with default settings
and enough memory. Sources: `c10/cuda/CUDACachingAllocator.cpp` in PyTorch;
https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

import bisect
import collections
import dataclasses
import itertools

MIB = 1 << 20
ROUND = 512  # every block is a multiple of it
# Blocks of at most SMALL bytes come from segments of 2 MiB, which hold no larger blocks.
SMALL = MIB
# Larger blocks of less than LARGE bytes come from segments of 20 MiB. The largest blocks each get a
# segment of their own, a multiple of 2 MiB.
LARGE = 10 * MIB


@dataclasses.dataclass(slots=True, eq=False)
class Piece:
    """A part of a segment, in use or idle."""

    size: int  # in bytes, as the address
    address: int
    pool: list  # the idle pieces of the same stream and kind of segment
    before: "Piece | None" = None  # its neighbours in the segment
    after: "Piece | None" = None
    idle: bool = False  # whether it is in the pool

    def __lt__(self, other):
        return (self.size, self.address) < (other.size, other.address)


class CachingAllocator:
    """The caching allocator of one device: bytes reserved now, and at most (`peak`)."""

    def __init__(self):
        # For each stream, the idle pieces of small and of large segments, smallest first. A stream
        # never gets pieces of another one.
        self.pools = collections.defaultdict(lambda: ([], []))
        self.reserved = self.peak = self.top = 0

    def allocate(self, nbytes, stream=0):
        """Returns the piece for a tensor: the smallest idle one that it fits in, or a new one."""
        size = max(ROUND, -(-nbytes // ROUND) * ROUND)
        pool = self.pools[stream][size > SMALL]
        i = bisect.bisect_left(pool, Piece(size, -1, pool))
        piece = pool.pop(i) if i < len(pool) else self._segment(size, pool)
        piece.idle = False
        rest = piece.size - size
        if rest > SMALL or (size <= SMALL and rest >= ROUND):
            after = Piece(rest, piece.address + size, pool, piece, piece.after)
            if piece.after:
                piece.after.before = after
            piece.size, piece.after = size, after
            self._keep(after)
        return piece

    def free(self, piece):
        """Takes a piece back, and joins it with idle neighbours."""
        for neighbour in (piece.after, piece.before):
            if neighbour and neighbour.idle:
                piece.pool.pop(bisect.bisect_left(piece.pool, neighbour))
                follows = neighbour is piece.after
                first, second = (piece, neighbour) if follows else (neighbour, piece)
                first.size += second.size
                first.after = second.after
                if first.after:
                    first.after.before = first
                piece = first
        self._keep(piece)

    def empty_cache(self):
        """Gives the segments back in which nothing is in use, as torch.cuda.empty_cache() does."""
        for pool in itertools.chain(*self.pools.values()):
            whole = [piece for piece in pool if not piece.before and not piece.after]
            pool[:] = [piece for piece in pool if piece.before or piece.after]
            self.reserved -= sum(piece.size for piece in whole)

    def _segment(self, size, pool):
        if size <= SMALL:
            nbytes = 2 * MIB
        elif size < LARGE:
            nbytes = 20 * MIB
        else:
            nbytes = -(-size // (2 * MIB)) * 2 * MIB
        piece = Piece(nbytes, self.top, pool)
        self.top += nbytes
        self.reserved += nbytes
        self.peak = max(self.peak, self.reserved)
        return piece

    def _keep(self, piece):
        piece.idle = True
        bisect.insort(piece.pool, piece)


class Replay:
    """A ledger's log on one device, event by event, and PyTorch's counters.

    `allocated` and `peak` are bytes of blocks, those of what is reserved are the allocator's;
    `events` are the log with the sizes of blocks on the device. PyTorch counts these: of a large
    block, a rest of up to 1 MiB is not cut off.
    """

    def __init__(self, device):
        self.device, self.allocator, self.events = device, CachingAllocator(), []
        self.allocated = self.peak = 0
        self._pieces = {}

    def take(self, block, change):
        """Takes in an event."""
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
        """Forgets the peaks until now."""
        self.peak, self.allocator.peak = self.allocated, self.allocator.reserved


def replay(events, device, since=0, until=None, emptied=()):
    """Replays a ledger's log; the cache is emptied where the part of it begins, and elsewhere.

    Returns the most bytes that were reserved in the part, and Replay.events.
    """
    replayed = Replay(device)
    for i, event in enumerate(events[:until]):
        if i == since or i in emptied:
            replayed.allocator.empty_cache()
        if i == since:
            replayed.reset()
        replayed.take(*event)
    return replayed.allocator.peak, replayed.events
