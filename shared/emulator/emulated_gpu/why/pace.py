"""Dependence of memory on the host's pace, where freed blocks wait for other streams.

A record whose `kept_by` is not empty may depend on the pace. Then the program runs again beside a
fast host and a slow host, and `pace` has the bounds if they differ.
"""

from emulated_gpu.launch import BOUNDS_US

LEAST = 0.02  # of the first figure: a smaller difference is none
# The figures of training that are compared, and what they are called.
FIGURES = {"device_peak_gb": "allocated", "device_reserved_gb": "reserved"}


def add(record, others):
    """Add `pace`, {figure: (least, most)} in GB, to a record; `others` are of the other hosts."""
    bounds = {}
    for figure in FIGURES:
        found = [r["train"][figure] for r in (record, *others)]
        if max(found) - min(found) > LEAST * found[0]:
            bounds[figure] = (min(found), max(found))
    if bounds:
        record["pace"] = bounds


def bounds(record, figure):
    """Return the least and the most GB of a figure of training."""
    same = (record["train"][figure],) * 2
    return record.get("pace", {}).get(figure, same)


def lines(record):
    """Return lines of text on the figures that depend on the pace, and the reasons."""
    fast, slow = BOUNDS_US
    text = []
    for figure, (least, most) in record.get("pace", {}).items():
        text.append(
            f"{least:.3g} to {most:.3g} GB {FIGURES[figure]}, depending on how fast the host is "
            f"({fast} to {slow} µs for a kernel): blocks wait for other streams, recorded by "
            f"{', '.join(record['kept_by'])}"
        )
    return text
