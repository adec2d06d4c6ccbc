"""Promise: the way to a card is what the simulation says, and the advice follows from it."""

import dataclasses

import pytest

from shared.common.errors import UserError
from shared.lessons import ways as stored_ways
from shared.predict import cards, command, simulation, way
from shared.predict.arguments import one_by_one
from shared.predict.jobs import Wanted, run_jobs
from shared.records.record import most_per_second

BASE = ("everything in bf16", "load without a second copy")


def test_a_way_fits_and_one_more_would_not():
    """Of 8 images, as many at once as a small card holds."""
    wanted, script = Wanted("gpu", "tiny", batch_size=8), "05_grad_accum/train"
    (tight,) = run_jobs([(way.with_way, script, wanted, 0.832, 8)])
    n = tight["way"]["at_once"]
    assert 1 <= n < tight["way"]["share"] == 8
    sizes = [dataclasses.replace(wanted, micro_batch_size=k) for k in (n, n + 1)]
    fits, too_large = run_jobs([(simulation.predict, script, size) for size in sizes])
    assert fits["train"]["device_reserved_gb"] + 0.8 == pytest.approx(tight["way"]["needs_gb"])
    assert too_large["train"]["device_reserved_gb"] + 0.8 > 0.832
    assert fits["bound"]["ms"] == pytest.approx(tight["way"]["bound"]["ms"])


def test_the_command_tells_the_way(capsys):
    records = command.main(["01,05,08", "11", "--preset", "tiny", "--card", "rtx4090"])
    printed = capsys.readouterr().out
    images, texts = records[:3], records[3:]
    assert [r["way"]["batch_size"] for r in images] == [16, 16, 16]  # also of 01, which has 64
    assert {r["way"]["at_once"] for r in images} == {4, 16}
    by_hand = max(images[:2], key=lambda r: 16 / r["way"]["bound"]["ms"])
    assert f"On one RTX 4090: {by_hand['script']} with 16 images at once is the fastest" in printed
    assert "On four RTX 4090: 08_fsdp/train with 4 images at once is the fastest" in printed
    assert "each needs GB" in printed and "What an update costs each device" in printed
    # The first combination takes all texts at once, so no other one is tried.
    tried = texts[1]["combinations"]
    assert [w["world_size"] for w in tried] == [1, 4]
    assert tried[0]["techniques"] == [*BASE] and tried[0]["at_once"] == tried[0]["share"] == 12
    assert tried[1]["techniques"] == [*BASE, "shard over the devices"]
    assert f"11_llm: {', '.join(BASE)}" in printed


def test_combinations_are_tried_until_all_fits_at_once():
    """On a card that is too small for any, all are tried."""
    steps = one_by_one("11_llm/train")
    assert [len(c) for c in steps.combinations(1, True)] == [3, 4, 6]
    assert [len(c) for c in steps.combinations(4, True)] == [4, 5, 5, 6]
    assert [len(c) for c in steps.combinations(1, False)] == [2, 3]
    assert steps.combinations(4, False) == []
    wanted = Wanted("gpu", "tiny", max_length=32, devices=1, batch_size=3)
    small = cards.Card("small", 0.82 / cards.GIB, (8, 0), 108, 2048, cards.CARDS["a100"].rates)
    (record,) = way.find([("11_llm/train", wanted)], small)
    alone = [*record["combinations"], record["way"]]  # the last is all of them
    assert [len(w["techniques"]) for w in alone] == [3, 4, 0]
    assert {w["at_once"] for w in alone} == {0}


def found(words, n, at_once, needs, ms):
    bound = {"ms": ms, "by": "arithmetic", "parts_ms": {"arithmetic": ms}, "beside_ms": {}}
    sizes = {"world_size": n, "batch_size": 16, "share": 16 // n}
    return words, {**sizes, "at_once": at_once, "missing": None, "needs_gb": needs, "bound": bound}


def test_advice_in_words():
    card = cards.CARDS["l4"]
    ways = [found("a", 1, 16, 9, 10), found("b", 1, 8, 5, 12.5), found("c", 1, 0, 40, 1)]
    one, four = way.advice([*ways, found("d", 4, 0, 90, 1)], "images", card)
    assert one == (
        "On one L4: a with 16 images at once is the fastest, at most 1,600 images/s; it needs 9.0 "
        "of 23.6 GB. b with 8 would free 4.0 GB, 20% slower."
    )
    assert four == "On four L4: none of these fits, or can run."
    same, _ = way.advice(
        [ways[0], found("e", 1, 4, 5, 10), *ways[3:], found("d", 4, 0, 9, 1)], "images", card
    )
    assert same.endswith("e with 4 would free 4.0 GB, and is as fast by the bound.")
    # An update that offloads seems to be fast, because the host's step is in no bound.
    offloading = found("f", 1, 16, 3, 9)
    offloading[1]["bound"]["beside_ms"] = {"host link": 8}
    one, _ = way.advice([*ways, offloading, found("d", 4, 0, 90, 1)], "images", card)
    assert one.startswith("On one L4: a with 16 images at once is the fastest")
    assert one.endswith("and is as fast by the bound, not counting its step on the host.")
    (only,) = way.advice([offloading], "images", card)
    assert only.startswith("On one L4: f with 16")
    (alone,) = way.advice(ways[1:], "images", card)
    assert alone.startswith("On one L4: b with 8") and "free" not in alone


def test_the_stored_ways_are_of_cards_that_there_are():
    assert {*stored_ways.CARDS} <= cards.CARDS.keys()
    (entry,) = stored_ways.ways("t4", ["--preset", "tiny", "02-03"])
    assert entry["setting"] == "vit_tiny at 32 px"
    assert entry["command"] == "python -m shared.predict --card t4 --preset tiny 02-03"
    # A T4 has no bf16, and a script that needs it refuses to run there.
    assert [way["missing"] for _, way in entry["ways"]] == [None, "bf16"]
    assert entry["advice"][0].startswith("On one T4: 02_mixed_precision/train with 64 images at")


def test_mistakes_are_told_in_one_line():
    with pytest.raises(UserError, match="rtx is no card that is known; choose from v100, "):
        command.main(["05", "--card", "rtx"])
    with pytest.raises(UserError, match="--card is about a GPU's memory; leave --on cpu out"):
        command.main(["05", "--on", "cpu", "--card", "l4"])


def test_a_speed_is_of_all_devices():
    record = {"batch_size": 16, "world_size": 4, "bound": {"ms": 8}}
    assert most_per_second(record) == 2000
