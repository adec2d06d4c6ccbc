"""Promise: one idea per stage, and the diff is the lesson."""

import difflib
import re
import statistics

import pytest
from conftest import NAMES, ROOT, TEXT

from shared import stages

PAIRS = list(zip(NAMES, NAMES[1:]))


def lines(stage):
    return (ROOT / stage / "train.py").read_text().splitlines()


def changed(before, after):
    """Returns the lines removed and added between two stages."""
    delta = [d for d in difflib.ndiff(lines(before), lines(after)) if d[:2] in ("- ", "+ ")]
    return [d[2:] for d in delta if d[0] == "-"], [d[2:] for d in delta if d[0] == "+"]


def test_half_of_the_diffs_are_at_most_ten_lines():
    assert statistics.median(sum(map(len, changed(*pair))) for pair in PAIRS) <= 10


@pytest.mark.parametrize("before, after", PAIRS)
def test_diff_is_small(before, after):
    assert 2 < sum(map(len, changed(before, after))) <= (25 if after == "08_fsdp" else 16)


@pytest.mark.parametrize("before, after", PAIRS)
def test_nothing_changes_but_for_a_reason(before, after):
    removed, added = changed(before, after)

    def packed(text):
        return "".join(text.split())

    # Re-indented under a new loop or context, by exactly one level, is a reason; anything else about spaces is not.
    for old in removed:
        for new in added:
            if packed(old) == packed(new):
                assert new.lstrip() == old.lstrip() and abs(len(new) - len(old)) == 4, f"only spaces differ: {old!r}, {new!r}"
    assert not any(packed(line) == "" for line in removed)


@pytest.mark.parametrize("run", NAMES + TEXT)
def test_length_and_form(run):
    stage, text = run[:2], stages.path(run).read_text()
    assert len(text.splitlines()) <= 130
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert text.startswith(f'"""Stage {stage}, ')
    functions = re.findall(r"^def (\w+)", text, re.MULTILINE)
    assert [name for name in functions if name != "parallelize"] == ["make_fabric", "build", "train_step", "main"]


def test_shared_has_no_branch_on_the_stage():
    for file in (ROOT / "shared").glob("*.py"):
        assert not re.search(r"\bif\b.*\bstage\b.*[\"']\d\d", file.read_text()), file
        assert len(file.read_text().splitlines()) <= 250, file
