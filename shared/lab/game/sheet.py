"""The teacher's sheet: what known solutions and mistakes of each level lead to."""

import tempfile
from pathlib import Path

from shared.cli import command_of
from shared.lab.game import judge, levels, texts
from shared.lab.records import markdown, stored
from shared.lab.records.formats import size
from shared.lab.records.origin import origin

START = "as handed out"


def verdicts(asked):
    """Return the verdicts on scripts, asked as (Level, name of a card, Change or None)."""
    with tempfile.TemporaryDirectory() as folder:
        plays = []
        for number, (level, card, change) in enumerate(asked):
            path = Path(folder, str(number), f"fit_{level.number}.py")
            path.parent.mkdir()
            path.write_text(level.text(change))
            plays.append(judge.Play(level, card, path))
        found = judge.judge(plays)
        for play, verdict in zip(plays, found):
            verdict["printed"] = texts.lines(verdict, play.path)
        return found


def everything():
    """Return what is tried: each level as handed out, its solutions, and its tries."""
    return [
        (level, level.card, change)
        for level in levels.LEVELS
        for change in (None, *level.solutions, *level.tries)
    ]


def store(argv=None):
    """Judge all that is tried, and store the verdicts."""
    asked = everything()
    made = command_of(["-m", "shared", "game"], argv)
    records = [
        {"level": level.number, "words": change.words if change else START, **verdict}
        for (level, _, change), verdict in zip(asked, verdicts(asked))
    ]
    records = [{**record, "command": made} for record in stored.rounded(records)]
    stored.write(stored.GAME, records)
    print(f"{stored.GAME.name}: {len(records)} verdicts")


def outcome(verdict):
    """Return what a verdict comes to, in one line."""
    gb = f"{verdict['needs_gb']:.2f} GB" if "needs_gb" in verdict else ""
    if "said" in verdict:
        return f"{gb}: {size(verdict['needs_gb'] - verdict['card_gb'])} too much"
    if verdict["printed"][1].startswith("fits"):
        return f"fits: {gb}, {verdict['ms']:.3g} ms per image"
    return verdict["printed"][1]


def part(folder, level=None):
    """Return the table of a level; without one, where the figures of all come from."""
    records = stored.read(stored.GAME)
    if not level:
        return origin([r for r in records if "device" in r], stored.GAME, what="the levels")
    rows = [("tried", "changed lines", "outcome", "why")]
    mine = [r for r in records if r["level"] == int(level)]
    tried = [change for each, _, change in everything() if each.number == int(level)]
    for change, r in zip(tried, mine, strict=True):
        rows.append((r["words"], str(r["lines"]), outcome(r), change.why if change else ""))
    start = ["```text", *mine[0]["printed"], "```"]
    return markdown.text(start, rows)
