"""Promise: a stage ends on an emulated card as its page says, by the same numbers."""

from helpers.emulated import NEEDS
from helpers.versions import made_here

from shared.lab.evidence import on_cards

PAIRS = on_cards.stored_pairs()


@NEEDS
def test_a_stage_ends_as_its_page_says():
    entry = PAIRS["04_batchsize/train"]
    now = on_cards.pair("04_batchsize/train")
    for when in ("before", "after"):
        assert bool(now[when]["message"]) == bool(entry[when]["message"])
        if made_here(entry):
            assert now[when] == entry[when]
