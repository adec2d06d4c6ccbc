"""The teacher's sheet of the game: judge all known solutions and mistakes, store the verdicts."""

from shared.lab.game import levels
from shared.lab.game.sheet import everything, verdicts
from shared.lab.records import stored
from shared.run.cli import Parser

START = "as handed out"


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("level", nargs="?", type=levels.get, help="of this level alone")
    alone = parser.parse_args(argv).level
    changes = [each for each in everything() if alone in (None, each[0])]
    records = [
        {"level": level.number, "title": change.title if change else START, **verdict}
        # In the order of levels.toml, by which the page finds the reasons for each verdict.
        for (level, _, change), verdict in zip(changes, verdicts(changes))
    ]
    made = {"command": "python -m shared records game_sheet"}
    records = [{**record, **made} for record in stored.rounded(records)]
    if alone:
        kept = [r for r in stored.read(stored.GAME) if r["level"] != alone.number]
        records = sorted([*kept, *records], key=lambda record: record["level"])
    stored.write(stored.GAME, records)
    print(f"{stored.GAME.name}: {len(records)} verdicts")
