"""Hold the emulated GPU to real ones: allocator traces, event by event.

Students of Stanford's CS336 recorded them with torch.cuda.memory on GPUs of their own, and put them
into public repositories (MIT license). events/ has their actions and sizes; record.py does the same
tensor operations in our own words. Autocast frees its copies of the weights in the order of a hash
of addresses, so each run of consecutive frees is compared without its order where it is on.
"""

import argparse
import difflib
import itertools
import lzma
import sys
import tempfile
from pathlib import Path

from shared.emulator import launch
from shared.emulator.build import BuildError

HERE = Path(__file__).parent
# The name of each trace is what record.py is asked for.
SOURCES = {
    "2025-train-100": "NiuHuangxiaozi/assignment2-systems @ 9d868b9, PyTorch 2.6",
    "2025-train-200-bf16": "NiuHuangxiaozi/assignment2-systems @ 9d868b9, PyTorch 2.6",
    "2026-train-128": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
    "2026-train-512-bf16": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
}


def real(name):
    """Return the events of a real GPU: "a SIZE" (alloc), "f" (free), "S", "R" (of segments)."""
    with lzma.open(HERE / "events" / f"{name}.txt.xz", "rt") as file:
        return file.read().splitlines()


def emulated(name):
    """Return the events of the same work on an emulated GPU.

    Raises:
        BuildError: this machine lacks something.
        RuntimeError: the program failed.
    """
    year, what, tokens, *precision = name.split("-")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "events.txt")
        options = [year, what, tokens, *(f"--{kind}" for kind in precision), "--out", out]
        command = launch.python(HERE / "record.py", options)
        code, _ = launch.run(command, launch.environment())
        if code:
            raise RuntimeError(f"{name}: exit code {code}")
        return out.read_text().splitlines()


def in_order(events, name):
    """Return events as they are compared: with autocast, each run of frees sorted."""
    if not name.endswith("bf16"):
        return events
    runs = itertools.groupby(events, lambda event: event[0] == "f")
    return [event for is_free, run in runs for event in (sorted(run) if is_free else run)]


def equal(name):
    """Return how many events are equal, in order; how many a real GPU had, and the emulated one."""
    one, other = (in_order(events, name) for events in (real(name), emulated(name)))
    if one == other:
        return len(one), len(one), len(one)
    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks), len(one), len(other)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SOURCES)}")
    args = parser.parse_args(argv)
    if unknown := sorted({*args.names} - {*SOURCES}):
        parser.exit(2, f"\ntraces: {unknown[0]} is not one of {', '.join(SOURCES)}\n")
    try:
        for name in args.names or SOURCES:
            same, there, here = equal(name)
            print(
                f"{name:20} {same:,} of {there:,} events equal, {here:,} emulated; {SOURCES[name]}"
            )
    except BuildError as error:
        print(f"\ntraces: {error}", file=sys.stderr)
        return 2
