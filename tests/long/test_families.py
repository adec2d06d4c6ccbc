"""Promise: page 11 says which families of language models can be simulated, and why others cannot.

There is one small model of each; test_text.py trains some of them.
"""

import itertools

import pytest
import torch
from conftest import ROOT, read_json
from shared.evidence.families import FAMILIES, SCRIPTS

from shared.evidence import families
from shared.lessons import parts
from shared.predict.jobs import run_jobs
from shared.records import stored

# Each family with one of the two scripts; `python -m shared.evidence.families` simulates both.
TURNS = dict(zip(FAMILIES, itertools.cycle(SCRIPTS)))


@pytest.fixture(scope="module")
def outcomes():
    """The outcome of each family's simulation: None, or the error."""
    own = {script: tuple(f for f in FAMILIES if TURNS[f] == script) for script in SCRIPTS}
    found = run_jobs([(families.outcomes, script, own[script]) for script in SCRIPTS])
    return {family: why for outcomes in found for family, why in outcomes.items()}


def groups_in_fp32():
    """Return whether this PyTorch supports grouped_mm() in fp32 on the meta device."""
    x, weights = torch.empty(8, 16, device="meta"), torch.empty(2, 16, 16, device="meta")
    ends = torch.empty(2, dtype=torch.int32, device="meta")
    try:
        torch.nn.functional.grouped_mm(x, weights, offs=ends)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("family", FAMILIES)
def test_it_works_or_the_page_says_why_not(outcomes, family):
    recorded = read_json(stored.FAMILIES)["outcomes"]
    if family == "Mixtral" and TURNS[family] == "11_llm/before" and not groups_in_fp32():
        assert "with Mixtral failed: RuntimeError: Expected " in outcomes[family]
    else:
        assert outcomes[family] == recorded[TURNS[family]][family]
    whys = {recorded[script][family] for script in SCRIPTS} - {None}
    (row,) = [r for r in parts.families(None).splitlines() if r.startswith(f"| {family} |")]
    assert row in (ROOT / "shared" / "text" / "README.md").read_text()
    assert row.count("works") == (0 if whys else 2)
    for why in whys:  # the operation and the model, in one line
        assert f"with {family} cannot be simulated: " in why and "aten" in why and "\n" not in why
