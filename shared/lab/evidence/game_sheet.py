"""The teacher's sheet of the game: judge all known solutions and mistakes, store the verdicts."""

from shared.lab.game.sheet import everything, verdicts
from shared.lab.records import stored
from shared.run.cli import Parser

START = "as handed out"


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    changes = everything()
    records = [
        {"level": level.number, "title": change.title if change else START, **verdict}
        # In the order of levels.toml, by which the page finds the reasons for each verdict.
        for (level, _, change), verdict in zip(changes, verdicts(changes))
    ]
    made = {"command": "python -m shared records game_sheet"}
    stored.write(stored.GAME, [{**record, **made} for record in stored.rounded(records)])
    print(f"{stored.GAME.name}: {len(records)} verdicts")
