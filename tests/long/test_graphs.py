"""Promise: a CUDA graph launches a micro-batch at once, and keeps its memory to itself."""

import pytest
from conftest import ROOT, run
from helpers.emulated import NEEDS

from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts

pytestmark = NEEDS
GRAPHED = "05_grad_accum/cuda_graphs"


@pytest.fixture(scope="module")
def pair():
    """The records of stage 05, and of its side road with a graph."""
    names = "05_grad_accum/train", GRAPHED
    return run_jobs([(predict, scripts.get(name), Wanted("full", "vit_b_16")) for name in names])


def test_the_host_starts_one_piece_instead_of_all_kernels_of_a_micro_batch(pair):
    stage, graphed = (r["time"] for r in pair)
    assert graphed["pieces"] < 0.2 * stage["pieces"]
    assert graphed["busy_ms"] == pytest.approx(stage["busy_ms"], rel=0.15)
    assert graphed["ms"] < 0.5 * stage["ms"]


def test_its_pool_is_reserved_beside_what_the_optimizer_step_takes(pair):
    stage, graphed = (r["train"] for r in pair)
    more = graphed["device_reserved_gb"] - stage["device_reserved_gb"]
    activations = stage["breakdown_gb"]["activations"]
    assert 0.5 * activations < more < 2 * activations
    # A replay allocates nothing, so the peak is the optimizer step's.
    assert graphed["device_peak_gb"] <= stage["device_peak_gb"]


def test_training_validates_and_ends_with_a_smaller_batch(tmp_path):
    script = ROOT / f"{GRAPHED}.py"
    said = run("-m", "emulated_gpu", script, "--preset", "tiny", cwd=tmp_path)
    assert "test accuracy" in said
