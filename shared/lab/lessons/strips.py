"""The picture of time: the host above the GPU, for micro-batches of several sizes.

It is drawn from the records of evidence/strips.py.
"""

import os

import matplotlib

from shared.lab.lessons.parts import FIGURES
from shared.lab.records import bars, stored

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

FILE = FIGURES / "host_and_gpu.png"
HOST, GPU = "#ff7f0e", "#1f77b4"


def shown():
    """Return the values stored in the picture's metadata; other ones show that it is stale."""
    return {str(entry["micro_batch_size"]): entry["ms"] for entry in stored.read(stored.STRIPS)}


def starting_ms(entry):
    """Return the milliseconds that the host takes to start all pieces of work of an update."""
    return entry["started"] * entry["launch_us"] / 1e3


def draw(file):
    """Draw a strip of the host above a strip of the GPU, for each entry, over time."""
    rows = stored.read(stored.STRIPS)
    figure, every = plt.subplots(len(rows), figsize=(8.5, 4.2), sharex=True, layout="constrained")
    for axes, entry in zip(every, rows):
        axes.barh(1.25, starting_ms(entry), height=0.8, color=HOST)
        # The height of a bin is the share of its time in which the GPU is busy.
        edges = [place * entry["bin_ms"] for place in range(len(entry["busy"]) + 1)]
        axes.stairs([0.8 * share for share in entry["busy"]], edges, fill=True, color=GPU)
        busy_ms = sum(entry["busy"]) * entry["bin_ms"]
        axes.set_yticks([0.4, 1.25], [f"GPU: {busy_ms:.0f} ms busy", "host: starts kernels"])
        axes.tick_params("y", length=0)
        axes.set_ylim(0, 1.75)
        stage = entry["script"][:2]
        title = f"{stage}, {entry['batch_size']} images, {entry['micro_batch_size']} at a time"
        how = f"emulated beside a host of {entry['launch_us']} µs"
        axes.set_title(f"{title}, {how}: {entry['ms']:.0f} ms", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    every[-1].set_xlim(0, max(entry["ms"] for entry in rows))
    every[-1].set_xlabel("ms of one update")
    bars.save(figure, file, shown())


def part(folder):
    """Return the picture, and what was emulated, in Markdown."""
    entry = stored.read(stored.STRIPS)[0]
    file = os.path.relpath(FILE, folder)
    return (
        f"![The host and the GPU during one update, over time]({file})\n\n"
        f"This is 06 on an emulated {entry['card']}, where the host takes {entry['launch_us']} µs "
        f"to start a kernel, so {starting_ms(entry):.0f} ms for the {entry['started']:,} of the "
        f"first row. Measured times differ. *The host sets the pace* where the GPU waits."
    )
