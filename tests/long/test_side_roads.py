"""Promise: side roads are predicted to the byte, and change losses only where they should.

Among other tests, eight of them are tried, other ones each day; all, if this file is named.
"""

import math
from pathlib import Path

import pytest
from conftest import ROADS, SHARDED_ROADS, read_json, run
from helpers.emulated import NEEDS
from helpers.predictions import assert_same_tensors, predict_all
from helpers.sharded import STEPS, TENSOR_PARALLEL
from helpers.single_process import alone
from helpers.today import some

from shared.lab.records import scripts

# A docstring says how losses compare with the parent's. These tables are of what it need not say:
# where a CPU with four processes, or rank 0 alone on an emulated GPU, differs from four GPUs.
COMPILED = {"05_grad_accum/compile", "09_act_ckpt/compile_budget"}  # on a GPU: test_compile.py
FLAT = {"08_fsdp/fsdp1"}  # its gradients are shards; on a CPU it gathers otherwise than on a GPU
PIPELINE = "08_fsdp/pipeline"  # each process has other weights: tests/long/test_pipeline.py
GRAPH = {"05_grad_accum/cuda_graphs"}  # a CPU captures nothing: test_compile.py
KERNELS = {"11_llm/liger"}  # a CPU computes its parent's loss: tests/long/test_causal.py
WRITTEN = {"11_llm/grpo", "11_llm/grpo_chunked"}  # for long: tests/long/test_text_roads.py
# Rank 0 alone does not know how many processes are in groups that NCCL splits off.
APART = {"08_fsdp/hsdp", PIPELINE, *COMPILED, *FLAT, *GRAPH, *KERNELS, *WRITTEN}
ALONE = [name for name in ROADS if name not in SHARDED_ROADS]
PRETRAINED = "other; they fall if the weights are pretrained"
FROM_THE_START = ("other from the start", PRETRAINED)  # the first loss may differ by 1 %


def parent(name):
    return scripts.get(name).parent


def losses(name):
    return scripts.get(name).losses


def tried(config):
    """Return the side roads that are tried: of one process, and of several."""
    if any(Path(__file__).stem in argument for argument in config.args):
        return ALONE, SHARDED_ROADS
    return some("alone", ALONE, 4), some("sharded", SHARDED_ROADS, 4)


def pytest_generate_tests(metafunc):
    alone, several = tried(metafunc.config)
    emulated = [name for name in [*alone, *several] if name not in APART]
    roads = {"road_alone": alone, "sharded_road": several, "emulated_road": emulated}
    for name in roads.keys() & {*metafunc.fixturenames}:
        metafunc.parametrize(name, roads[name])


@pytest.fixture(scope="module")
def sharded(tmp_path_factory, request):
    """Observations of four processes in side roads and their parents, as of those in stages."""
    out = tmp_path_factory.mktemp("sharded") / "seen.json"
    run("tests/helpers/sharded.py", out, *tried(request.config)[1])
    return read_json(out)


def measured(name, sharded):
    return sharded[0].get(f"{name} as is") or alone(name)[1]


@pytest.fixture(scope="module")
def predicted(request):
    """Predictions of the side roads, {script: record}."""
    names = [name for names in tried(request.config) for name in names if name not in APART]
    return predict_all(names, "tiny")


@NEEDS
def test_the_emulated_gpu_holds_the_tensors_that_real_numbers_need(
    emulated_road, predicted, sharded
):
    on_cpu = measured(emulated_road, sharded)
    assert_same_tensors(emulated_road, on_cpu, predicted[emulated_road])


def test_losses_of_one_process(road_alone):
    name, kind = road_alone, losses(road_alone)
    before, _ = alone(parent(name))
    now, _ = alone(name)
    assert len(now) == STEPS
    if kind == "of another task":
        return
    assert now[0] == pytest.approx(before[0], rel=0.01 if kind in FROM_THE_START else 1e-6)
    if kind == "the same":
        assert now == before
    elif kind == "nearly the same":
        assert now == pytest.approx(before, rel=1e-6)
    elif kind == "not a number after one update":
        assert all(map(math.isnan, now[1:]))
    else:
        assert now != before
        assert kind == PRETRAINED or now[-1] < now[0] - 0.01


def test_losses_of_four_processes(sharded_road, sharded):
    name, kind = sharded_road, losses(sharded_road)
    for rank in sharded:
        now = rank[f"{name} as is"]["losses"]
        parallel = rank.get(f"{parent(name)} as is")
        before = parallel["losses"] if parallel else alone(parent(name))[0]
        near = pytest.approx(before[0], rel=0.01 if kind in FROM_THE_START else 1e-3)
        assert len(now) == STEPS and now[0] == near
        if kind == "the same":
            assert now == before
        elif kind == "nearly the same":
            assert now == pytest.approx(before, rel=1e-2)
        else:
            assert now != before and now[-1] < now[0] - 0.01


def test_gradients_of_whole_weights_agree(sharded_road, sharded):
    name = sharded_road
    seen = [rank[f"{name} as is"] for rank in sharded]
    assert len(seen[0]["whole"]) == STEPS
    # The processes of a pipeline have other weights.
    assert name in (*FLAT, PIPELINE) or all(rank["whole"] == seen[0]["whole"] for rank in seen)
    whole_batch = "shares=" in scripts.get(name).path.read_text()  # each process has all of it
    assert seen[0]["shares"] == (1 if whole_batch else 4)


def test_tensor_parallelism_is_as_one_device_in_fp32(sharded):
    one, record = alone("07_init_module/train", fp32=True)
    several = sharded[0][f"{TENSOR_PARALLEL} in fp32"]
    assert several["losses"] == pytest.approx(one, rel=1e-4)
    assert several["test_accuracy"] == record["test_accuracy"]


@pytest.fixture(scope="module")
def muon(tmp_path_factory):
    """Matrices that were updated whole and in shards, {type: comparison}."""
    out = tmp_path_factory.mktemp("muon") / "compared.json"
    run("tests/helpers/sharded_muon.py", out)
    return read_json(out)


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float32"])
def test_muon_on_shards_makes_the_updates_of_one_process(muon, dtype):
    seen = muon[dtype]
    assert min(seen["change"]) > 0.005  # of weights below 0.2
    assert all(seen["equal"])


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float32"])
def test_pytorch_computes_muon_of_shards_rightly(muon, dtype):
    """As the docstring says: up to rounding, which Newton-Schulz, in bf16, makes larger."""
    seen = muon[dtype]
    near = [off < 0.2 * change for off, change in zip(seen["of shards"], seen["change"])]
    assert all(near)
