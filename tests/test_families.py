"""Promise: the families of language models that page 11 names can be simulated; the others say why.

One small model of each; test_text.py trains some of them.
"""

import itertools
import json

import pytest
import torch
from conftest import ROOT

from shared.lessons import families, parts, stored
from shared.lessons.families import FAMILIES, SCRIPTS
from shared.predict import gpu
from shared.predict.jobs import Wanted, call, run_jobs
from shared.predict.simulation import predict

# Each family with one of the two scripts; `python -m shared.lessons.families` simulates both.
TURNS = dict(zip(FAMILIES, itertools.cycle(SCRIPTS)))


@pytest.fixture(scope="module")
def simulated():
    """What came of each family's simulation: None, or why it failed."""
    own = {script: tuple(f for f in FAMILIES if TURNS[f] == script) for script in SCRIPTS}
    found = run_jobs([(families.outcomes, script, own[script]) for script in SCRIPTS])
    return {family: why for outcomes in found for family, why in outcomes.items()}


# It multiplies groups of matrices, which PyTorch 2.11 does only in bf16.
NEWER = {"Mixtral"} if torch.__version__ < "2.12" else set()


@pytest.mark.parametrize("family", sorted({*FAMILIES} - NEWER))
def test_it_works_or_the_page_says_why_not(simulated, family):
    recorded = json.loads(stored.FAMILIES.read_text())["outcomes"]
    assert simulated[family] == recorded[TURNS[family]][family]
    whys = {recorded[script][family] for script in SCRIPTS} - {None}
    (row,) = [r for r in parts.families(None).splitlines() if r.startswith(f"| {family} |")]
    assert row in (ROOT / "11_llm" / "README.md").read_text()
    assert row.count("works") == (0 if whys else 2)
    for why in whys:  # the operation and the model, in one line
        assert f"with {family} cannot be simulated: " in why and "aten" in why and "\n" not in why


def test_few_do_not_work(simulated):
    failed = {family for family, why in simulated.items() if why}
    assert failed <= {"Longformer", *NEWER}


def one_after_the_other(names, folder):
    """Predicts models in this process, as outcomes() does."""
    return [call(predict, "11_llm/train", wanted(folder / name)) for name in names]


def wanted(model):
    return Wanted("gpu", "full", str(model), max_length=families.TOKENS, updates=1)


def test_one_process_for_several_models_gives_the_same_bytes(tmp_path):
    names = ["T5", "Qwen3"]
    for name in names:
        families.small(name).save_pretrained(tmp_path / name)
    alone = (predict, "11_llm/train", wanted(tmp_path / "Qwen3"))
    (_, together), fresh = run_jobs([(one_after_the_other, names, tmp_path), alone])
    for key in ("load", "train", "peak_at", "host_breakdown_gb"):
        assert together[key] == fresh[key]


@pytest.mark.parametrize(
    "error, message",
    [
        (
            gpu.NEEDS_NUMBERS[0]("aten.item"),
            "x with m cannot be simulated: the result of aten.item ",
        ),
        (gpu.NEEDS_NUMBERS[1]("aten.nonzero"), "x with m cannot be simulated: .* aten.nonzero "),
        (
            NotImplementedError(
                "Could not run 'aten::foo' with arguments from the 'gpu' backend.\nb"
            ),
            "x with m cannot be simulated: the simulated GPU does not know aten::foo",
        ),
        (KeyError("a\nb"), "the simulation of x with m failed: KeyError: 'a"),
        (RuntimeError(), "the simulation of x with m failed: RuntimeError: "),
    ],
)
def test_why_not_is_one_line(error, message):
    def fails(*_):
        raise error

    with pytest.raises(families.UserError, match=message) as caught:
        call(fails, "x", Wanted("gpu", "tiny", "m"))
    assert "\n" not in str(caught.value)


def test_a_mask_that_was_not_counted_is_no_end_of_a_text():
    """How many tokens a mask chooses is only known of the ends of texts, one for each."""
    with gpu.Mode():
        x, mask = torch.empty(3, 5, 2), torch.empty(3, 5, dtype=torch.bool)
        with pytest.raises(gpu.NEEDS_NUMBERS):
            x[mask]
        assert torch.unique_consecutive(mask.sum(1)).shape == (1,)
        assert x[mask].shape == (3, 2)
        with pytest.raises(gpu.NEEDS_NUMBERS):
            x[mask]
