"""Promise: scripts and their parents are found by docstrings, and records have all fields."""

import pytest
from conftest import NAMES, PLAIN, TEXT

from shared.lab.records import scripts
from shared.run.cli import Parser
from shared.run.errors import UserError


def test_the_scripts_of_this_repository():
    assert len(NAMES) == len(PLAIN) == 10 and TEXT == ["11_llm/before", "11_llm/train"]
    for chain in (NAMES, PLAIN):
        assert [scripts.get(name).parent for name in chain] == [None, *chain[:-1]]
    assert [scripts.get(name).parent for name in TEXT] == [None, "11_llm/before"]
    assert set(scripts.every()) >= {*NAMES, *PLAIN, *TEXT}
    with pytest.raises(UserError, match="there is no script 06_sgd; 06_sgd/train is the name"):
        scripts.get("06_sgd")


def test_select():
    four = ["01_baseline/train", "02_mixed_precision/train", "03_bf16/train", "08_fsdp/train"]
    for words in (["01-03,08"], ["08", "01,02-3"]):
        parser = Parser()  # as the ladder and the predictor have it
        scripts.add_stages(parser)
        assert scripts.selected(parser.parse_args(words)) == four
    assert scripts.selected(parser.parse_args([])) is None
    assert scripts.select(["03", "01-02", "08_fsdp/"], "stage") == four
    assert scripts.select(["11"], "stage") == TEXT
    assert scripts.select(["06_sgd/plain.py"], "stage") == ["06_sgd/plain"]
    for wrong in ("00", "3-2", "01-99"):
        with pytest.raises(UserError, match=f"^stage {wrong}: .* there are 01 to 11$"):
            scripts.select([wrong], "stage")
    for wrong in ("", "1-", "a", "1,,2", "06_sgd/kahan"):
        with pytest.raises(UserError, match="there is no such script; write numbers and ranges"):
            scripts.select([wrong], "stage")
