"""Promise: compiled blocks, graphs, FSDP1 and FP8 need on an emulated GPU what their pages say.

The records are the stored ones; test_records_of_today.py makes three of each group anew.
"""

import pytest
from conftest import ROOT, run
from helpers.emulated import NEEDS
from helpers.sample_files import textures

from shared.lab.evidence import groups
from shared.lab.lessons import side_roads

VARIANTS = groups.variants()
GRAPHED = "05_grad_accum/cuda_graphs"
STAGE, ROAD = (side_roads.records()[name] for name in ("05_grad_accum/train", GRAPHED))


def test_a_budget_lies_between_all_and_checkpoints():
    titles = "09, checkpointed", "budget 0.5", "08, not compiled"
    least, half, most = (VARIANTS[title]["train"]["device_peak_gb"] for title in titles)
    assert least < half < 0.85 * most


def test_without_its_limiter_a_fast_host_makes_fsdp1_reserve_more():
    records = {title: r for title, r in VARIANTS.items() if r["script"] == "08_fsdp/fsdp1"}
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


def test_fp8_keeps_as_many_activations():
    titles = "before.py in fp32", "fp8.py in fp32"
    before, fp8 = (VARIANTS[title]["train"]["breakdown_gb"]["activations"] for title in titles)
    assert fp8 == pytest.approx(before, rel=0.01)


def test_the_host_starts_one_piece_instead_of_all_kernels_of_a_micro_batch():
    stage, graphed = STAGE["time"], ROAD["time"]
    assert graphed["pieces"] < 0.2 * stage["pieces"]
    assert graphed["busy_ms"] == pytest.approx(stage["busy_ms"], rel=0.15)
    assert graphed["ms"] < 0.5 * stage["ms"]


def test_the_pool_of_a_graph_is_reserved_beside_what_the_optimizer_step_takes():
    stage, graphed = STAGE["train"], ROAD["train"]
    more = graphed["device_reserved_gb"] - stage["device_reserved_gb"]
    activations = stage["breakdown_gb"]["activations"]
    assert 0.5 * activations < more < 2 * activations
    # A replay allocates nothing, so the peak is the optimizer step's.
    assert graphed["device_peak_gb"] <= stage["device_peak_gb"]


@NEEDS
def test_training_with_graphs_validates_and_ends_with_a_smaller_batch(tmp_path):
    pictures = textures(tmp_path / "data", 44)  # 35 to train with: batches of 16, 16 and 3
    words = ROOT / f"{GRAPHED}.py", "--preset", "tiny", "--data", pictures
    said = run("-m", "emulated_gpu", *words, cwd=tmp_path)
    assert "test accuracy" in said
