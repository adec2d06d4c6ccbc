"""Promise: compiled blocks, FSDP1 and FP8 need on an emulated GPU what their pages say."""

import pytest

from emulated_gpu.cards import CARDS
from shared.lab.evidence.groups import emulate
from shared.lab.predict.cases import of
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts


@pytest.fixture(scope="module")
def compiled():
    """The peaks in GB of compiled scripts and of their counterparts, {script: peak}."""
    names = "05_grad_accum/train", "05_grad_accum/compile", "08_fsdp/train", "09_act_ckpt/train"
    names += ("09_act_ckpt/compile_budget",)
    records = run_jobs([(predict, scripts.get(name), Wanted("full", "vit_b_16")) for name in names])
    return {r["script"]: r["train"]["device_peak_gb"] for r in records}


def test_compiling_alone_saves_nothing(compiled):
    eager, fused = compiled["05_grad_accum/train"], compiled["05_grad_accum/compile"]
    assert fused == pytest.approx(eager, rel=0.01)


def test_a_budget_lies_between_all_and_checkpoints(compiled):
    least, most = compiled["09_act_ckpt/train"], compiled["08_fsdp/train"]
    assert least < compiled["09_act_ckpt/compile_budget"] < 0.85 * most


def variants(table):
    mine = [v for v in of("variants") if v.table == table]
    return {v.title: r for v, r in zip(mine, run_jobs([(emulate, v) for v in mine]))}


def test_without_its_limiter_a_fast_host_makes_fsdp1_reserve_more():
    records = variants("FSDP1")
    allocated = {r["train"]["device_peak_gb"] for r in records.values()}
    assert len(allocated) == 1
    reserved = {words: r["train"]["device_reserved_gb"] for words, r in records.items()}
    limited = reserved["a host of 5 µs"]
    assert reserved["a host of 41.5 µs, no limit"] < 1.05 * limited
    assert 1.3 * limited < reserved["a host of 5 µs, no limit"]
    assert reserved["a host of 5 µs, no limit"] < reserved["a host of 1 µs, no limit"]
    for r in records.values():  # blocks that wait for a stream are no longer allocated
        held = sum(r["train"]["breakdown_gb"].values())
        assert held == pytest.approx(r["train"]["device_peak_gb"], rel=1e-6)


def test_fp8_saves_no_memory():
    names, options = ("11_llm/before", "11_llm/fp8"), Wanted("full", card=CARDS["h100"])
    before, fp8 = run_jobs([(predict, scripts.get(name), options) for name in names])
    assert before["train"]["device_peak_gb"] < fp8["train"]["device_peak_gb"]
    assert fp8["train"]["breakdown_gb"]["activations"] == pytest.approx(
        before["train"]["breakdown_gb"]["activations"], rel=0.01
    )
