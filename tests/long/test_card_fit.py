"""Promise: the largest batch that fits on a card is found, and the first script that fits is named.

Cards and budgets lie between two predictions of the installed version, and between two sizes that
the allocator can reserve, which differ by 2 MiB.
"""

import pytest
from helpers.emulated import NEEDS
from helpers.predictions import predict_all, predicted

from emulated_gpu import cards
from emulated_gpu.why.fit import needs as needs_gb
from shared.lab.predict import card_fit, command, sizes, stage, tables
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.largest import largest
from shared.lab.records import scripts

pytestmark = NEEDS

OUTSIDE = tables.CONTEXT_GB  # memory of a process outside PyTorch's allocator
BETWEEN = 0.001


def sized(script, *micro_batches):
    """Return predictions for these micro-batch sizes, with at least two micro-batches each."""
    shares = 4 if script == "08_fsdp/train" else 1
    wanted = [
        Wanted("tiny", micro_batch_size=n, batch_size=max(16, 2 * n * shares))
        for n in micro_batches
    ]
    return run_jobs([(stage.predict, scripts.get(script), w) for w in wanted])


def gb_of(records):
    return [r["train"]["device_reserved_gb"] for r in records]


def test_the_largest_fits_and_one_more_would_not():
    """For a batch of any size, on each of four GPUs."""
    script = "08_fsdp/train"
    card = sum(gb_of(sized(script, 1, 24))) / 2 + BETWEEN + OUTSIDE + tables.NCCL_GB
    (record,) = run_jobs([(sizes.with_fits, scripts.get(script), Wanted("tiny"), card)])
    n = record["fits"]["largest_micro_batch"]
    assert [needs_gb(r) <= card for r in sized(script, n, n + 1)] == [True, False]


def test_fits_tells_the_first_that_does():
    names = "01_baseline/train", "04_batchsize/train"
    needs = [needs_gb(r) for r in predict_all(names, "tiny").values()]
    assert needs[1] < needs[0]
    records = predicted("--preset", "tiny", "01", "04", "--card", sum(needs) / 2)
    answers = [r["fits"] for r in records.values()]
    assert [a["fits"] for a in answers] == [False, True]
    for a, r in zip(answers, records.values()):
        assert a["needs_gb"] == r["train"]["device_reserved_gb"] + OUTSIDE
    printed = tables.fitting(list(records.values()))
    assert printed[-1] == "The first that fits: 04_batchsize/train on 1 GPU"
    assert tables.fitting([records["01_baseline/train"]])[-1] == "None of these fits as it is."
    # With slightly less memory, idle memory is given back.
    (record,) = predicted("--preset", "tiny", "01", "--card", needs[0] - BETWEEN).values()
    assert record["fits"]["fits"] and record["fits"]["needs_gb"] == needs[0]
    assert "  tightly  " in tables.fitting([record])[2]


@pytest.mark.parametrize("guess", [1, 4, 64])
def test_search_finds_the_largest(guess):
    for needed, budget in (
        (lambda n: 5 + n, 3),
        (lambda n: 5 + n, 6),
        (lambda n: 5 + 0.001 * n, 10),
        (lambda n: 5 + 20 * (n // 7), 100),
        (lambda n: max(50, 0.3 * n), 60),
        (lambda n: 1 + n**1.5, 1e6),
    ):
        tried = []

        def needs(n):
            tried.append(n)
            return needed(n)

        by_trying_all = max((n for n in range(1, 20001) if needed(n) <= budget), default=0)
        assert largest(needs, budget, guess) == by_trying_all
        assert len(tried) == len(set(tried)) < 30


def test_the_cost_is_that_of_the_scripts_own_update():
    """Not of the smaller updates that a search makes after it."""
    own = command.main(["03", "--preset", "tiny"])[0]
    found = command.main(["03", "--preset", "tiny", "--card", "24"])[0]
    assert found["fits"]["largest_micro_batch"] > found["batch_size"] == own["batch_size"]
    assert found["cost"] == own["cost"] and found["time"] == own["time"]


def test_a_run_that_fails_takes_no_others_with_it():
    names = "01_baseline/train", "02_mixed_precision/train"
    jobs = [(scripts.get(n), Wanted(preset)) for n, preset in zip(names, ("tiny", "none"))]
    (record,), failed = card_fit.fits(jobs, cards.get("a100").gb)
    assert record["script"] == "01_baseline/train" and failed.failed == 1
