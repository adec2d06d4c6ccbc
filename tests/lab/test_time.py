"""Promise: an emulated time has a range, or errors, of runs from which no rule was made."""

import re
import statistics

import pytest

from emulated_gpu import cards
from emulated_gpu.why import fit, times
from shared.lab.lessons import on_gpus
from shared.lab.records import stored, time_errors

RECORDS = [r for r in stored.read(stored.PUBLISHED) if "that rules" not in r["source"]]
TIMED = [r for r in RECORDS if r["devices"] == 1 and r.get("time") and r["published_ms"]]


def test_a_card_on_which_published_runs_were_not_near_has_a_range():
    time = {"ms": 100.0, "busy_ms": 99.0, "pieces": 10}
    record = {"time": time, "batch_size": 4, "unit": "texts", "world_size": 1}
    for name, card in cards.CARDS.items():
        errors = [time_errors.error(r) for r in TIMED if r["card"] == card.title]
        said = times.line(record, 40, card)
        if errors and time_errors.nine_of_ten(errors) > time_errors.NEAR:
            low, high = map(int, re.match(r"An update takes (\d+) to (\d+) ms, so ", said).groups())
            shortest, longest = (100 / (1 + limit(errors)) for limit in (max, min))
            true = min(shortest, 100), max(longest, 100)
            assert (low, high) == pytest.approx(true, abs=1), f"{name}: {low} to {high}, not {true}"
            assert f"one {card.title} took" in times.note(card)
        else:
            assert said.startswith("An update takes about 100 ms (half") and not times.note(card)
            assert "so 100,000 texts take 42 minutes" in said
    said = times.line({**record, "world_size": 4}, 40, cards.CARDS["l4"])
    assert said.startswith("An update takes at least 100 ms: ")


def test_the_errors_that_why_and_pages_name_are_those_of_runs_kept_apart_from_the_rules():
    off = [abs(e) for rules, *_, errors in on_gpus.groups() if rules == "not used" for e in errors]
    found = statistics.median(off), time_errors.nine_of_ten(off)
    assert times.OFF == pytest.approx(found, abs=0.005), f"times.OFF has to be {found}"
    kept = [r for r in RECORDS if r["source"].startswith("Networks") and r["counter"] == "reserved"]
    missing = max(abs(r["published_gb"] / r["emulated_gb"] - 1) for r in kept)
    assert len(kept) == 12 and 0 <= fit.CUDNN - missing < 0.001, missing
