"""Compare the events of two allocators, texts that begin with f if memory is freed."""

import difflib
import itertools


def in_order(events):
    """Return events with each run of frees sorted.

    Autocast frees its copies of the weights in the order of a hash of addresses.
    """
    runs = itertools.groupby(events, lambda event: event[0] == "f")
    return [event for is_free, run in runs for event in (sorted(run) if is_free else run)]


def verdict(real, emulated):
    """Return "equal", "order of frees" or "different"."""
    if real == emulated:
        return "equal"
    return "order of frees" if in_order(real) == in_order(emulated) else "different"


def equal(real, emulated):
    """Return the number of equal events, in order; the order within a run of frees is ignored."""
    expected = in_order(real)
    events = in_order(emulated)
    if expected == events:
        return len(expected)
    # Without autojunk, which would ignore frequent sizes.
    blocks = difflib.SequenceMatcher(None, expected, events, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)
