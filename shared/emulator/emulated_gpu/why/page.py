"""One page about a script, in a single file: the answer, and what holds the memory in an update."""

from html import escape

from emulated_gpu.accounting.blocks import CATEGORIES
from emulated_gpu.texts import amount, size

WIDTH, HEIGHT = 960, 320  # of the picture, in px
TOP = 1.15  # of the peak: the picture's height leaves room for its label
LARGEST = 15  # tensors in the table
# https://matplotlib.org/stable/users/explain/colors/colormaps.html#qualitative (tab10)
COLORS = "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #7f7f7f #bcbd22 #17becf".split()
SHADES = {"backward": "#eee", "step": "#ddd"}
STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
svg { width: 100%; height: auto } svg text { font: 13px sans-serif }
table { border-collapse: collapse } td, th { padding: .1rem .8rem .1rem 0; text-align: left }
i { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em }
"""


def made(answer):
    """Return the page of a runs.Answer, as text."""
    first, *others = answer.text
    lines = "".join(f"<p>{escape(line)}</p>" for line in others)
    update = _update(answer.moments) if answer.moments else "<p>No two updates were seen.</p>"
    script = escape(answer.record["script"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{script}</title>'
        f"<style>{STYLE}</style><h1>{script}</h1><p><strong>{escape(first)}</strong></p>"
        f"{lines}{update}</html>\n"
    )


def _update(moments):
    """Return the last update of a history.condensed() in HTML: picture, legend, largest tensors."""
    columns = [moments["device"].get(label) for label in CATEGORIES]
    held = [(label, color, c) for label, color, c in zip(CATEGORIES, COLORS, columns) if c]
    total = [sum(mb) for mb in zip(*(c for *_, c in held))]
    peak = max(range(len(total)), key=total.__getitem__)
    legend = "".join(f'<i style="background:{color}"></i>{label}' for label, color, _ in held)
    return (
        "<h2>What holds the memory during one update</h2><p>From left to right: allocations and "
        f"frees in order, not time.</p>{_picture(moments, held, total, peak)}<p>{legend}</p>"
        f"<h2>The largest tensors at the peak</h2>{_table(moments, moments['at'][peak])}"
    )


def _picture(moments, held, total, peak):
    """Return the categories' sizes on top of each other, as SVG."""
    at, phases = moments["at"], moments["phases"]
    across = WIDTH / max(moments["events"], 1)
    up = HEIGHT / (total[peak] * TOP or 1)
    # Each moment lasts until the next one.
    ends = [*at[1:], moments["events"]]
    parts = []
    for phase, begin, end in _runs(phases, at, ends):
        box = f'x="{begin * across:.1f}" width="{(end - begin) * across:.1f}" height="{HEIGHT}"'
        parts.append(f'<rect {box} fill="{SHADES.get(phase, "#fff")}"/>')
        if end - begin > moments["events"] / 20:
            parts.append(f'<text x="{begin * across + 4:.1f}" y="14">{phase}</text>')
    below = [0.0] * len(at)
    for label, color, column in held:
        above = [a + b for a, b in zip(below, column)]
        edges = [*zip(at, ends, above), *reversed([*zip(ends, at, below)])]
        points = " ".join(
            f"{x * across:.1f},{HEIGHT - mb * up:.1f}" for a, b, mb in edges for x in (a, b)
        )
        name = f"<title>{label}</title>"
        parts.append(f'<polygon points="{points}" fill="{color}">{name}</polygon>')
        below = above
    x = at[peak] * across
    line = moments["lines"][peak]
    label = f"peak, {size(total[peak] / 1e3)}" + (f", line {line}" if line else "")
    side = f'x="{x - 5:.1f}" text-anchor="end"' if x > WIDTH / 2 else f'x="{x + 5:.1f}"'
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="18" y2="{HEIGHT}" stroke="#000"/>')
    parts.append(f'<text {side} y="32" font-weight="bold">{label}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _runs(phases, at, ends):
    """Return (phase, its first event, the event after it) of each stretch of one phase."""
    found = []
    for phase, begin, end in zip(phases, at, ends):
        if found and found[-1][0] == phase:
            found[-1] = phase, found[-1][1], end
        else:
            found.append((phase, begin, end))
    return found


def _table(moments, event):
    """Return the largest tensors that are there after an event, as a table."""
    columns = moments["tensors"]["device"]
    texts = moments["texts"]
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    there = [r for r in rows if r["born"] <= event and (r["freed"] is None or r["freed"] > event)]
    largest = sorted(there, key=lambda row: -row["nbytes"])[:LARGEST]
    lines = ["<tr><th>size<th>shape<th>type<th>holds<th>of</tr>"]
    for row in largest:
        names = (row[key] for key in ("shape", "dtype", "category", "module"))
        cells = [amount(row["nbytes"]), *(n is not None and texts[n] or "" for n in names)]
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"
