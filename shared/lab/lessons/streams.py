"""Pictures of a GPU's streams during an update, of the stages that use several.

They are drawn from the records of `python -m shared streams`.
"""

import base64
import os

import matplotlib

from shared.lab.evidence.calibrate.runs import RANKS
from shared.lab.lessons.parts import FIGURES
from shared.lab.records import bars, measured, scripts, stored

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

KINDS = {
    "product": ("matrix products", "#1f77b4"),
    "kernel": ("other kernels", "#9ecae1"),
    "send": ("between GPUs", "#ff7f0e"),
    "copy": ("from and to the host", "#2ca02c"),
}


def by_stream(pieces):
    """Return the milliseconds of work of each stream, {stream: ms}; else it waits or is idle."""
    streams = sorted({stream for _, stream, *_ in pieces})
    return {s: sum(b - a for _, stream, a, b in pieces if stream == s) for s in streams}


def hidden(pieces, kind):
    """Return the share of a kind's work during which the stream of products is at work, too.

    None if there is no work of this kind.
    """
    # Products run on one stream. Work of this kind on the same stream waits for them, so it cannot
    # overlap, and does not count.
    main = next(stream for kind, stream, *_ in pieces if kind == "product")
    # Other kernels of this stream hide work elsewhere just as products do.
    computing = [piece[2:] for piece in pieces if piece[1] == main and piece[0] != kind]
    moving = [piece[2:] for piece in pieces if piece[0] == kind and piece[1] != main]
    overlap = sum(max(0, min(b, d) - max(a, c)) for a, b in moving for c, d in computing)
    total = sum(b - a for a, b in moving)
    return overlap / total if total else None


def stored_entries():
    """Return the stored entries, one for each script of evidence.streams.SHOWN."""
    return [entry for entry in stored.read(stored.STREAMS) if "pieces" in entry]


def shown(entry):
    """Return the values stored in a picture's metadata; other ones show that it is stale."""
    return {entry["script"]: entry["ms"]}


def picture(entry):
    """Return the file of the picture of an entry."""
    return FIGURES / f"{scripts.get(entry['script']).folder}_streams.png"


def draw(entry, file):
    """Draw the streams of an entry, a row each, over time."""
    busy_ms = by_stream(entry["pieces"])
    # matplotlib counts rows from the bottom, and the first stream shall be at the top.
    rows = sorted(busy_ms, reverse=True)
    figure, axes = plt.subplots(figsize=(8.5, 0.9 + 0.45 * len(rows)), layout="constrained")
    # Kind by kind, as broken_barh() draws the spans of one color.
    for kind, (label, color) in KINDS.items():
        for place, row in enumerate(rows):
            spans = [(a, b - a) for k, s, a, b in entry["pieces"] if (k, s) == (kind, row)]
            axes.broken_barh(spans, (place - 0.4, 0.8), color=color, linewidth=0)
        axes.barh(0, 0, color=color, label=label)  # for the legend; not all kinds may occur
    axes.set_yticks(range(len(rows)), [f"{busy_ms[row]:.1f} ms busy" for row in rows])
    axes.tick_params("y", length=0)
    axes.set_xlim(0, entry["ms"])
    axes.set_xlabel("ms")
    axes.legend(ncols=len(KINDS), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    bars.save(figure, file, shown(entry))


def caption(entry):
    """Return how much of the work of other streams passes while the GPU computes, as text."""
    overlap = [
        f"{hidden(entry['pieces'], kind):.0%} of the {ms:.1f} ms {KINDS[kind][0]}"
        for kind, ms in entry["busy_ms"].items()
        if kind in ("send", "copy") and (hidden(entry["pieces"], kind) or 0) > 0
    ]
    # What the picture leaves out: a real host is slower, and then nothing needs to overlap.
    starting = measured.starting_ms(entry["script"], RANKS)
    return (
        f"Emulated with a fast host ({entry['launch_us']} µs a kernel), to show what can overlap: "
        f"{' and '.join(overlap)}. The host of the H200 took {starting:.0f} ms to start an "
        f"update, as rank 0 of {RANKS}."
    )


def part(folder):
    """Return the picture of a stage's streams, and its caption, in Markdown."""
    (entry,) = (e for e in stored_entries() if scripts.get(e["script"]).folder == folder.name)
    file = os.path.relpath(picture(entry), folder)
    return f"![The streams of a GPU during one update, over time]({file})\n\n{caption(entry)}"


def embedded(script):
    """Return the picture of a script's streams as a data URI, and its caption, None if none is."""
    for entry in stored_entries():
        if entry["script"] == script:
            # The workshop page is a single file, so it contains its pictures.
            data = base64.b64encode(picture(entry).read_bytes()).decode()
            return f"data:image/png;base64,{data}", caption(entry)
    return None
