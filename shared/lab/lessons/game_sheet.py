"""The tables of the teacher's sheet for the game, from stored verdicts."""

from shared.lab.game.sheet import everything
from shared.lab.records import markdown, stored
from shared.lab.records.columns import Column, in_markdown
from shared.lab.records.formats import size


def outcome(verdict):
    """Return the outcome of a verdict, in one line."""
    gb = f"{verdict['needs_gb']:.2f} GB" if "needs_gb" in verdict else ""
    if "said" in verdict:
        return f"{gb}: {size(verdict['needs_gb'] - verdict['card_gb'])} too much"
    # [0] is the number of changed lines.
    if verdict.get("slow"):
        return f"too slow: {gb}, {verdict['ms']:.3g} ms per image"
    if verdict["printed"][1].startswith("fits"):
        return f"fits: {gb}, {verdict['ms']:.3g} ms per image"
    return verdict["printed"][1]


def part(folder, level=None):
    """Return the table of a level; without one, where the figures of all come from."""
    records = stored.read(stored.GAME)
    if not level:
        # A script that is refused has not been run on a card.
        run = [r for r in records if "device" in r]
        return markdown.origin(run, stored.GAME, what="the levels")
    records = [r for r in records if r["level"] == int(level)]
    tried = [change for each, _, change in everything() if each.number == int(level)]
    # In the order of levels.toml, in which they were judged; `strict` finds a level that was
    # changed since then.
    reasons = {r["title"]: change.why for change, r in zip(tried, records, strict=True) if change}
    columns = [
        Column("tried", "title"),
        Column("changed lines", "lines"),
        Column("outcome", outcome),
        Column("why", lambda r: reasons.get(r["title"])),
    ]
    start = ["```text", *records[0]["printed"], "```"]
    return markdown.text(start, in_markdown(columns, records))
