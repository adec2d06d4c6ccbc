"""Promise: pages show, by commands, the ends of stages on emulated cards, and misconceptions."""

import re

from emulated_gpu.why.fit import needs
from shared.lab.evidence import groups, on_cards
from shared.lab.predict import cases
from shared.lab.records import scripts, stored
from shared.lab.records.reading import grouped

PAIRS = groups.every()["on_cards"].records
THINGS = cases.tables()["misconceptions"]
WITHOUT = ("07_init_module/train", "10_offload/train")  # both stages would fit


def test_every_stage_fits_a_card_that_the_one_before_does_not():
    trains = [name for name in scripts.stages() if name.endswith("/train")]
    assert [entry["stage"] for _, entry in PAIRS] == [n for n in trains if n not in WITHOUT]
    for case, entry in PAIRS:
        stage = entry["stage"]
        for when, name in (("before", scripts.get(stage).parent), ("after", stage)):
            if name:
                words = on_cards.command(case, name)
                assert entry[when]["command"] == " ".join(["python", *words])
        if entry["before"]:
            assert entry["before"]["message"]
        assert bool(entry["after"]["message"]) == (stage == "01_baseline/train")


def test_the_smaller_model_would_fit_where_the_page_says_so():
    predicted = stored.predictions()
    for case, _ in PAIRS:
        if case.settings.model == "vit_h_14":
            for name in (scripts.get(case.script).parent, case.script):
                assert needs(predicted[name]) < case.settings.card.gb, name


def test_misconceptions_are_shown_by_their_commands():
    records = stored.read(stored.MISCONCEPTIONS)
    printed = grouped(records, lambda r: r["command"])
    named = [command for thing in THINGS for command in thing.get("commands", ())]
    assert {*named} == {*printed} and len(THINGS) == 12
    for thing in THINGS:
        assert len(re.findall(r"[.:]( |$)", thing["says"])) >= 3, thing["title"]
