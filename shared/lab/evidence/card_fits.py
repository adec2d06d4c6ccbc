"""Store the configurations that fit the default models on the cards of the workshop page.

This takes about a minute per card.
"""

from emulated_gpu import cards
from shared.cli import Parser
from shared.lab.predict import card_fit, options, selection
from shared.lab.records import stored
from shared.lab.records.reading import by_model, setting, unit

# A card that is often free of charge, one for games, and one of a data center.
CARDS = ("t4", "rtx4090", "a100")


def ways(name):
    """Return the result of `python -m shared predict --card NAME`, a dictionary per model."""
    card = cards.CARDS[name]
    args = options.parse(["--card", name])
    records, failed = card_fit.find(selection.runs(args), card)
    if failed:
        raise failed
    return [
        {
            "card": name,
            "title": card.title,
            "gb": card.gb,
            "setting": setting(group[0]),
            "unit": unit(group[0]),
            "ways": card_fit.ways(group),
            **{key: group[0][key] for key in ("versions", "git_commit", "date")},
            "command": args.command,
        }
        for group in by_model(records)
    ]


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    # Two commands: the one that a reader runs for one card, and the one that made this file.
    made = {"made_with": "python -m shared card_fits"}
    results = [{**result, **made} for name in CARDS for result in ways(name)]
    stored.write(stored.CARD_FITS, results)
