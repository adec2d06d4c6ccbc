"""Promise: side roads are predicted to the byte, and change losses only where they should."""

import math

import pytest
from conftest import ROADS, SHARDED_ROADS, once
from helpers.emulated import NEEDS
from helpers.predictions import assert_same_tensors, predict_all
from helpers.sharded import STEPS, TENSOR_PARALLEL
from helpers.single_process import alone

from shared.lab.records import scripts

# These compile nothing on a CPU: tests/long/test_compile.py.
COMPILED = {"05_grad_accum/compile", "09_act_ckpt/compile_budget"}
FLAT = {"08_fsdp/fsdp1"}  # its gradients are shards; on a CPU it gathers otherwise than on a GPU
WHOLE_BATCH = {TENSOR_PARALLEL, "11_llm/context_parallel"}  # each process has it
PIPELINE = "08_fsdp/pipeline"  # each process has other weights: tests/long/test_pipeline.py
# Rank 0 alone does not know how many processes are in groups that NCCL splits off.
APART = {"08_fsdp/hsdp", PIPELINE, *COMPILED, *FLAT}
EMULATED = [name for name in ROADS if name not in APART]
ALONE = [name for name in ROADS if name not in SHARDED_ROADS]
# These compute the same numbers as their parents. (On a CPU, the first two change nothing.)
SAME = {
    "01_baseline/tf32",
    "02_mixed_precision/bf16_mixed",
    "05_grad_accum/hf_accelerate",
    "06_sgd/adam_in_backward",
    "06_sgd/adam_on_host",
    "06_sgd/ema",
    "09_act_ckpt/one_gpu",
    "11_llm/hf_accelerate",
    *COMPILED,
    *SHARDED_ROADS,
}
# These compute the same, but sum or round in another order or type.
CLOSE = {"08_fsdp/ddp", "08_fsdp/no_sync", "08_fsdp/hsdp", "08_fsdp/fp32_shards", TENSOR_PARALLEL}
CLOSE |= {"11_llm/causal_chunked", "11_llm/eager_attention", "08_fsdp/sequence_parallel"}
CLOSE |= {*FLAT, PIPELINE, "11_llm/context_parallel"}
OTHER = {"08_fsdp/zero1", "11_llm/lora_sharded"}  # another optimizer, or other trainable weights
ANEW = {"11_llm/causal"}  # another model, task
CAUSAL = ("11_llm/causal", "11_llm/causal_chunked", "11_llm/context_parallel")
FAILS = "03_bf16/fp16_true"
# The weights that these freeze should be pretrained; in the tiny model they are random.
OF_RANDOM = {"11_llm/frozen", "11_llm/lora", "11_llm/lora_sharded", "11_llm/qlora"}
ROUNDED = {*OF_RANDOM, "11_llm/fp8"}


def parent(name):
    return scripts.get(name).parent


def measured(name, sharded):
    return sharded[0].get(f"{name} as is") or alone(name)[1]


@pytest.fixture(scope="session")
def predicted(tmp_path_factory):
    """Predictions of the side roads, {script: record}."""
    return once(tmp_path_factory, "side_roads.json", lambda: predict_all(EMULATED, "tiny"))


@NEEDS
@pytest.mark.parametrize("name", EMULATED)
def test_the_emulated_gpu_holds_the_tensors_that_real_numbers_need(predicted, sharded, name):
    assert_same_tensors(name, measured(name, sharded), predicted[name])


@pytest.mark.parametrize("name", ALONE)
def test_losses_of_one_process(name):
    (there, _), (here, _) = alone(parent(name)), alone(name)
    assert len(here) == STEPS
    if name in ANEW:
        return
    # Nothing is updated yet; but LoRA draws random numbers, and few bits round weights.
    assert here[0] == pytest.approx(there[0], rel=0.01 if name in ROUNDED else 1e-6)
    if name in SAME:
        assert here == there
    elif name in CLOSE:
        assert here == pytest.approx(there, rel=1e-6)
    elif name == FAILS:
        assert math.isnan(here[1]) and math.isnan(here[2])
    else:
        assert here != there
        assert name in OF_RANDOM or here[-1] < here[0] - 0.01


@pytest.mark.parametrize("name", SHARDED_ROADS)
def test_losses_of_four_processes(sharded, name):
    before = parent(name)
    for rank in sharded:
        here = rank[f"{name} as is"]["losses"]
        parallel = rank.get(f"{before} as is")
        there = parallel["losses"] if parallel else alone(before)[0]
        near = pytest.approx(there[0], rel=0.01 if name in OF_RANDOM else 1e-3)
        assert len(here) == STEPS and here[0] == near
        if name in OTHER:
            assert here != there and here[-1] < here[0] - 0.01
        elif name in CLOSE:
            assert here == pytest.approx(there, rel=1e-2)
        else:
            assert here == there


@pytest.mark.parametrize("name", [name for name in SHARDED_ROADS if name != PIPELINE])
def test_gradients_of_whole_weights_agree(sharded, name):
    seen = [rank[f"{name} as is"] for rank in sharded]
    assert len(seen[0]["whole"]) == STEPS
    assert name in FLAT or all(rank["whole"] == seen[0]["whole"] for rank in seen)
    assert seen[0]["shares"] == (1 if {name, parent(name)} & WHOLE_BATCH else 4)
