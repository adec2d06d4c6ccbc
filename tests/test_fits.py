"""Promise: the largest micro-batch that fits on a card is found, and one more does not fit."""

import pytest
from simulations import predicted

from shared.predict import fits, simulation, tables
from shared.predict.jobs import Wanted, run_jobs


def test_fits_is_searched(on_gpu):
    budget = 0.06
    processes = {"08_fsdp/train": 4}
    found = run_jobs(
        [(fits.largest_micro_batch, stage, Wanted("gpu", "tiny"), budget) for stage in processes]
    )
    jobs = []
    for (stage, n), largest in zip(processes.items(), found):
        assert largest > 4
        sizes = [
            {"micro_batch_size": k, "batch_size": max(16, 2 * k * n)}
            for k in (largest, largest + 1)
        ]
        jobs += [(simulation.predict, stage, Wanted("gpu", "tiny", **size)) for size in sizes]
    assert [r["train"]["device_reserved_gb"] <= budget for r in run_jobs(jobs)] == [True, False]


def test_fits_tells_the_first_that_does():
    records = predicted("--preset", "tiny", "01", "04", "--fits", 0.9)
    answers = [r["fits"] for r in records.values()]
    assert [a["fits"] for a in answers] == [False, True]
    for a, r in zip(answers, records.values()):
        assert a["needs_gb"] == r["train"]["device_reserved_gb"] + 0.8
    printed = tables.fitting(list(records.values()))
    assert printed[-1] == "The first that fits: 04_batchsize/train on 1 GPU" and len(printed) == 5
    shared = {**records["04_batchsize/train"], "world_size": 4}
    heading, row, below = tables.fitting([shared])[1:]
    assert heading.split()[1] == "GPUs" and row.split()[1] == "4"
    assert below == "The first that fits: 04_batchsize/train on 4 GPUs"
    assert tables.fitting([records["01_baseline/train"]])[-1] == "None of these fits as it is."


@pytest.mark.parametrize(
    "needed, budget",
    [
        (lambda n: 5 + n, 3),
        (lambda n: 5 + n, 6),
        (lambda n: 5 + 0.001 * n, 10),
        (lambda n: 5 + 20 * (n // 7), 100),
        (lambda n: max(50, 0.3 * n), 60),
        (lambda n: 1 + n**1.5, 1e6),
    ],
)
@pytest.mark.parametrize("guess", [1, 4, 64])
def test_search_finds_the_largest(needed, budget, guess):
    asked = []

    def ask(n):
        asked.append(n)
        return needed(n)

    assert fits.search(ask, budget, guess) == max(
        (n for n in range(1, 20001) if needed(n) <= budget), default=0
    )
    assert len(asked) == len(set(asked)) < 30
