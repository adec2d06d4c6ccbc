"""What the page tells of ways to a card, in the words of `python -m shared.predict --card NAME`."""

import json

from shared.predict import way
from shared.records import stored
from shared.records.views import origin


def stored_ways():
    """Returns what is stored, {model with its inputs: a dictionary for each card}.

    The dictionaries have the card's name, a title, heading and rows of a table, the advice, and
    where all of it comes from.
    """
    found = {}
    for told in json.loads(stored.WAYS.read_text()) if stored.WAYS.exists() else []:
        most = max(its["world_size"] for _, its in told["ways"])
        record = {**told, "device": f"simulated {told['title']}", "world_size": most}
        size, card = told["ways"][-1][1]["batch_size"], f"{told['title']}, {told['gb']:.4g} GB"
        found.setdefault(told["setting"], []).append(
            {
                "card": told["card"],
                "title": f"Ways to {size} {told['unit']} per update on {card}",
                "heading": way.heading(told["unit"]),
                "rows": way.rows(told["ways"]),
                "advice": told["advice"],
                "origin": origin([record], stored.WAYS, told["setting"]),
            }
        )
    return found
