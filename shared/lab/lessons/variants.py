"""The tables of variants: small changes of scripts, and what they do to memory."""

import operator

from shared.lab.evidence import groups
from shared.lab.predict import cases
from shared.lab.records import markdown, scripts, stored
from shared.lab.records.columns import Column, in_markdown
from shared.lab.records.formats import number
from shared.lab.records.reading import on_host, peak


def part(folder, table=None):
    """Return the table of a group of variants; without one, where the figures of all come from."""
    records = groups.variants()
    if not table:
        return markdown.origin([*records.values()], stored.PREDICTED, what="the variants")
    shown = [v for v in cases.of("variants") if v.table == table]
    # The memory of this card is scarce, or streams decide about what is reserved.
    usual = cases.Wanted.card, cases.Wanted.host_us
    tight = any((v.settings.card, v.settings.host_us) != usual for v in shown)
    phase = shown[0].phase
    host = any(on_host(records[v.title], phase) for v in shown)

    def change(row):
        # The first of a group is compared with none.
        before = records.get(row["variant"].against)
        return before and markdown.against(peak(before, phase), peak(row, phase))

    columns = [
        Column("GB", "variant.title"),
        Column("allocated", f"{phase}.device_peak_gb", number),
        Column("change", change),
        *([Column("reserved", f"{phase}.device_reserved_gb", number)] if tight else []),
        *([Column("host", f"{phase}.host_peak_gb", number)] if host else []),
        Column("correction", "variant.mend"),
    ]
    rows = [{**records[variant.title], "variant": variant} for variant in shown]
    return markdown.text(in_markdown(columns, rows))


def grown(folder):
    """Return a table of the memory reserved by default and with expandable segments."""
    key = operator.itemgetter("model", "script", "world_size")
    # The last record of a model has all techniques.
    default = {key(r): r for r in stored.predicted(stored.STAGES, stored.TEXT)}
    variants = cases.of("variants")
    expandable = {v.title: groups.variants()[v.title] for v in variants if v.settings.expandable}
    rows = []
    shares = []
    for title, r in expandable.items():
        before, after = (x["train"]["device_reserved_gb"] for x in (default[key(r)], r))
        if r["script"] in scripts.ladder():
            shares.append(after / before - 1)
        else:
            rows.append((title, number(before), number(after), markdown.compared(before, after)))
    heading = ("GB reserved", "by default", "expandable", "change")
    ladder = ("01 to 10", "", "", f"{max(shares):+.1%} to {min(shares):+.1%}")
    sources = markdown.sources([*expandable.values()], stored.PREDICTED)
    return markdown.text([heading, ladder, *rows], sources)
