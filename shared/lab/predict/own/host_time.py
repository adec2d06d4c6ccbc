"""The time that the host takes to launch an update, when nothing of ours runs beside it."""

import time


class HostTime:
    """A clock that stands still while batches are made: a real run makes them in other processes.

    `ends` are the seconds at which the timed updates began and ended.
    """

    def __init__(self):
        self.ends = []
        self._fetching = 0.0  # seconds, so far

    def mark(self):
        """Note that an update ends here, or that the first one begins."""
        self.ends.append(time.perf_counter() - self._fetching)

    def fetch(self, batches, end):
        """Return the next batch of an iterator, or `end`; the time for it does not count."""
        began = time.perf_counter()
        batch = next(batches, end)
        self._fetching += time.perf_counter() - began
        return batch

    def milliseconds(self):
        """Return the milliseconds that this computer took to launch an update, None if unknown.

        The first of the timed updates is left out: it warms up.
        """
        ends = self.ends[1:]
        if len(ends) < 2:
            return None
        return (ends[-1] - ends[0]) / (len(ends) - 1) * 1e3
