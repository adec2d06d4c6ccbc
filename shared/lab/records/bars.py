"""The picture of a ladder: a bar per script, stacked by category of memory."""

import io
import json
import warnings

import matplotlib
from PIL import Image, PngImagePlugin

from shared.lab.records.atomic_files import write_bytes
from shared.lab.records.formats import one_line, scale
from shared.lab.records.reading import by_model, peak, setting
from shared.memory.accounting.blocks import CATEGORIES

matplotlib.use("Agg")  # draws to files, needs no display
matplotlib.rcParams["text.parse_math"] = False  # a dollar in a name is a dollar
import matplotlib.pyplot as plt

COLORS = dict(zip(CATEGORIES, plt.get_cmap("tab10").colors))
# The colors of a picture with their shades along the edges of letters; more look no better.
COLORS_OF_A_PICTURE = 128


def draw(records, file):
    """Draw a bar per script: the peak while training, stacked by category; a mark for loading.

    Every model has a scale of its own. Bars too small on it are drawn again on a larger one.
    """
    parts = []
    groups = by_model(records)
    for group in groups:
        most = max(map(peak, group))
        # Below a fifth of the highest bar, the categories of a bar cannot be told apart.
        parts += [group, [r for r in group if peak(r) < most / 5]]
    parts = [part for part in parts if part]
    # Widths by the number of bars, so that all bars are equally wide.
    widths = [len(part) for part in parts]
    size = (max(8.5, 0.5 * sum(widths)), 4.5)  # so that the names below the bars have room
    ratios = {"width_ratios": widths, "layout": "constrained", "squeeze": False}
    figure, axes = plt.subplots(1, len(parts), figsize=size, **ratios)
    for ax, part in zip(axes[0], parts):
        _draw_bars(ax, part)
        ax.set_title("" if part in groups else "enlarged", fontsize=9)
    # Only the first part has a legend, since a category has one color in all parts.
    axes[0][0].legend(frameon=False, fontsize=8)
    on = [f", on {one_line(r['dataset'])}" if r.get("dataset") else "" for r, *_ in groups]
    what = "; ".join(setting(group[0]) + data for group, data in zip(groups, on))
    r = records[0]
    made = f"{one_line(r['device'])}, torch {r['versions']['torch']}, {r['date']}"
    figure.suptitle(f"Peak of allocated device memory: {what}\n{made}", fontsize=9)
    save(figure, file, peaks(records))


def peaks(records):
    """Return the values for a picture's metadata, {script: peak in GB}; see save()."""
    return {r["script"]: peak(r) for r in records}


def save(figure, file, shown):
    """Write a figure as a PNG file, and close it.

    `shown`, such as records' peaks(), is stored in its metadata. A picture is stale if its records
    have other values.
    """
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # in a name, such as CJK
        figure.savefig(drawn, format="png", dpi=130)
    plt.close(figure)  # pyplot keeps every figure that is not closed
    write_bytes(file, with_palette(Image.open(drawn), json.dumps(shown)))


def with_palette(image, description):
    """Return an image as a PNG file with a palette, which has a third of the bytes."""
    # Dithering would put dots of other colors into areas of one color.
    colors = image.convert("RGB").quantize(COLORS_OF_A_PICTURE, dither=Image.Dither.NONE)
    information = PngImagePlugin.PngInfo()
    information.add_text("Description", description)
    file = io.BytesIO()
    colors.save(file, "PNG", optimize=True, pnginfo=information)
    return file.getvalue()


def _draw_bars(axes, records):
    gb_or_mb, factor = scale(records)
    positions = range(len(records))
    bottoms = [0.0] * len(records)
    for label, color in COLORS.items():
        heights = [r["train"]["breakdown_gb"].get(label, 0) * factor for r in records]
        axes.bar(positions, heights, bottom=bottoms, label=label, color=color, width=0.65)
        bottoms = [a + b for a, b in zip(bottoms, heights)]
    loading = [r["load"]["device_peak_gb"] * factor for r in records]
    axes.plot(positions, loading, "ko", ms=5, label="peak while loading")
    for x, r in zip(positions, records):
        height = peak(r) * factor
        # The sum of the parts may exceed the peak by a rounding error.
        at = (x, max(height, bottoms[x]))
        above = {"xytext": (0, 3), "textcoords": "offset points"}
        # Peaks in MB reach from less than 1 to hundreds: three digits suit all of them.
        text = f"{height:.2f}" if factor == 1 else f"{height:.3g}"
        axes.annotate(text, at, ha="center", fontsize=9, **above)
    names = [
        one_line(r["script"]).removesuffix("/train").replace("_", "\n").replace("/", "\n")
        for r in records
    ]
    axes.set_xticks(positions, names, fontsize=7)
    axes.set(ylabel=gb_or_mb, xlim=(-0.5, len(records) - 0.5))  # room for names
    axes.spines[["top", "right"]].set_visible(False)
