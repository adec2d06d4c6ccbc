"""The tables of variants: small changes of scripts, and what they do to memory."""

import operator

from shared.lab.evidence.variants import VARIANTS, Variant, recorded
from shared.lab.records import markdown, scripts, stored
from shared.lab.records.formats import number
from shared.lab.records.origin import origin
from shared.lab.records.reading import on_host


def part(folder, table=None):
    """Return the table of a group of variants; without one, where the figures of all come from."""
    records = recorded()
    if not table:
        return origin([*records.values()], stored.PREDICTED, what="the variants")
    shown = [v for v in VARIANTS if v.table == table]
    host = any(on_host(records[v.title]) for v in shown)
    # The memory of this card is scarce, or streams decide about what is reserved.
    tight = shown[0].card != Variant.card or any(v.host_us != Variant.host_us for v in shown)
    compared = any(v.against for v in shown)
    heading = ["GB", "allocated"]
    if compared:
        heading.append("change")
    if tight:
        heading.append("reserved")
    if host:
        heading.append("host")
    if shown[0].tiny:  # a group of mistakes
        heading.append("correction")
    rows = [tuple(heading)]
    for v in shown:
        train = records[v.title]["train"]
        peak = train["device_peak_gb"]
        cells = [v.title, number(peak)]
        if v.against:
            before = records[v.against]["train"]["device_peak_gb"]
            cells.append(markdown.against(before, peak))
        elif compared:
            # The first of the group, with which the others are compared.
            cells.append("")
        if tight:
            cells.append(number(train["device_reserved_gb"]))
        if host:
            cells.append(number(train["host_peak_gb"]))
        if v.tiny:
            cells.append(v.mend or "")
        rows.append(tuple(cells))
    return markdown.text(rows)


def grown(folder):
    """Return a table of the memory reserved by default and with expandable segments."""
    key = operator.itemgetter("model", "script", "world_size")
    # The last record of a model has all techniques.
    default = {key(r): r for r in stored.predicted(stored.STAGES, stored.TEXT)}
    expandable = {v.title: recorded()[v.title] for v in VARIANTS if v.expandable}
    lines = []
    shares = []
    for title, r in expandable.items():
        reserved = [record["train"]["device_reserved_gb"] for record in (default[key(r)], r)]
        if r["script"] in scripts.ladder():
            shares.append(reserved[1] / reserved[0] - 1)
        else:
            lines.append((title, *map(number, reserved), markdown.compared(*reserved)))
    heading = ("GB reserved", "by default", "expandable", "change")
    ladder = ("01 to 10", "", "", f"{max(shares):+.1%} to {min(shares):+.1%}")
    sources = markdown.sources([*expandable.values()], stored.PREDICTED)
    return markdown.text([heading, ladder, *lines], sources)
