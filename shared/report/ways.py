"""What the page tells of ways to a card, in the words of `python -m shared.predict --card NAME`."""

import json

from shared.lessons import stored
from shared.predict import way
from shared.records.origin import origin


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
                "heading": _heading(told["unit"]),
                "rows": rows(told["ways"]),
                "advice": told["advice"],
                "origin": origin([record], stored.WAYS, told["setting"]),
            }
        )
    return found


def rows(ways):
    """Returns the rows of a table of ways: those of one GPU first, and the fastest first.

    Args:
        ways: list of (what to call it, a record's Way).
    """

    def place(named):
        _, its = named
        return its["world_size"], not its["at_once"], -way.speed(its)

    found = []
    for words, its in sorted(ways, key=place):
        fits = its["at_once"] > 0
        fast = (f"{way.speed(its):,.0f}", its["bound"]["by"]) if fits else ("", "")
        at_once = str(its["at_once"]) if fits else "none fits"
        found.append((words, str(its["world_size"]), at_once, f"{its['needs_gb']:.2f}", *fast))
    return found


def _heading(unit):
    return "way", "GPUs", "at once", "each needs GB", f"at most {unit}/s", "bounded by"
