"""Promise: one idea per stage, and the diff is the lesson."""

import difflib
import re
import statistics

import pytest
from conftest import NAMES, PLAIN, ROOT, TEXT

from shared import stages

PAIRS = [*zip(NAMES, NAMES[1:]), *zip(PLAIN, PLAIN[1:])]


def lines(run):
    return stages.path(run).read_text().splitlines()


def changed(before, after):
    """Returns the lines removed and added between two scripts."""
    delta = [d for d in difflib.ndiff(lines(before), lines(after)) if d[:2] in ("- ", "+ ")]
    return [d[2:] for d in delta if d[0] == "-"], [d[2:] for d in delta if d[0] == "+"]


@pytest.mark.parametrize("chain", [NAMES, PLAIN])
def test_half_of_the_diffs_are_at_most_ten_lines(chain):
    assert statistics.median(sum(map(len, changed(*pair))) for pair in zip(chain, chain[1:])) <= 10


@pytest.mark.parametrize("before, after", PAIRS)
def test_diff_is_small(before, after):
    assert 2 < sum(map(len, changed(before, after))) <= (25 if "08_fsdp" in after else 16)


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


@pytest.mark.parametrize("stage", NAMES)
def test_with_fabric_and_without_are_the_same_script(stage):
    fabric, plain = (stages.path(run).read_text() for run in (stage, f"{stage}/plain"))
    assert stages.idea(stages.path(stage)).split(": ") == stages.idea(stages.path(f"{stage}/plain")).replace(", in plain PyTorch", "").split(": ")
    for same in (r"^(\w+ = \d.*)", r"^def (?!make_)(\w+)", r"^(from shared .*)", r"(torch\.optim\.\w+\(.*?\))\)?$", r"(^def parallelize.*?\n\n\n)"):
        flags = re.MULTILINE | re.DOTALL if "parallelize" in same else re.MULTILINE
        assert re.findall(same, plain, flags) == re.findall(same, fabric, flags)
    assert "abric" not in plain and sum(map(len, changed(f"{stage}/plain", stage))) <= 70


@pytest.mark.parametrize("run", NAMES + PLAIN + TEXT)
def test_length_and_form(run):
    stage, text = run[:2], stages.path(run).read_text()
    assert len(text.splitlines()) <= 130
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert text.startswith(f'"""Stage {stage}, ')
    functions = re.findall(r"^def (\w+)", text, re.MULTILINE)
    assert [name for name in functions if name != "parallelize"] == ["make_device" if run in PLAIN else "make_fabric", "build", "train_step", "main"]


def test_shared_has_no_branch_on_the_stage():
    for file in (ROOT / "shared").glob("*.py"):
        assert not re.search(r"\bif\b.*\bstage\b.*[\"']\d\d", file.read_text()), file
        assert len(file.read_text().splitlines()) <= 250, file
