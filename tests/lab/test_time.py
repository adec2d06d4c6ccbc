"""Promise: an emulated time has a range on a card on which published runs were not near."""

import re

import pytest

from emulated_gpu import cards
from emulated_gpu.why import times
from shared.lab.records import stored, time_errors


def test_a_card_on_which_published_runs_were_not_near_has_a_range():
    time = {"ms": 100.0, "busy_ms": 99.0, "pieces": 10}
    for name, card in cards.CARDS.items():
        errors = [
            time_errors.error(r)
            for r in stored.read(stored.PUBLISHED)
            if r["card"] == card.title and r["devices"] == 1 and r.get("time") and r["published_ms"]
        ]
        said = times.line(time, 40, card, 1)
        if errors and time_errors.nine_of_ten(errors) > time_errors.NEAR:
            low, high = map(int, re.match(r"An update takes (\d+) to (\d+) ms:", said).groups())
            longest = 100 / (1 + min(errors))
            assert low <= 100 <= high and high == pytest.approx(max(longest, 100), abs=1), name
            assert f"one {card.title} took" in times.note(card)
        else:
            assert said.startswith("An update takes about 100 ms:") and not times.note(card)
    assert times.line(time, 40, cards.CARDS["h200"], 4).startswith("An update takes at least 100")
