"""Promise: a language model is predicted to the byte, and every technique saves its part."""

import json

import pytest
import torch
from conftest import TEXT
from helpers.emulated import NEEDS
from helpers.predictions import with_tensors

from shared.lab.predict.cases import one_by_one
from shared.lab.predict.command import main
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts

pytestmark = NEEDS

LOADED, TRAINED = ["parameters"], ["parameters", "gradients", "optimizer states", "inputs"]


@pytest.fixture(scope="module")
def steps():
    return main(["11", "--preset", "full", "--one-by-one"])


def test_every_technique_saves_what_it_is_for(steps):
    device, host = ([r["train"][f"{k}_peak_gb"] for r in steps] for k in ("device", "host"))
    load_host = [r["load"]["host_peak_gb"] for r in steps]
    bf16, micro, load, shard, checkpointing, offload = range(1, 7)
    for n in (bf16, micro, shard, checkpointing, offload):
        assert device[n] < 0.9 * device[n - 1]
    assert device[load] == device[load - 1] and load_host[load] < 0.01 * load_host[load - 1]
    held = [r["train"]["breakdown_gb"] for r in steps]
    assert held[bf16]["parameters"] == pytest.approx(held[0]["parameters"] / 2, rel=0.001)
    assert held[micro]["activations"] < held[bf16]["activations"] / 3
    quarter = held[load]["optimizer states"] / 4
    assert held[shard]["optimizer states"] == pytest.approx(quarter, rel=0.05)
    assert "recomputed" in held[checkpointing] and "recomputed" not in held[shard]
    assert not {"parameters", "gradients", "optimizer states"} & set(held[offload])
    assert host[offload] > 100 * host[checkpointing]


def test_the_way_starts_and_ends_at_the_scripts(steps):
    same = "script load train world_size batch_size micro_batch_size precision".split()
    jobs = [(predict, scripts.get(run), Wanted("full")) for run in TEXT]
    for script, step in zip(run_jobs(jobs), (steps[0], steps[-1])):
        assert [script[key] for key in same] == [step[key] for key in same]


def test_steps_on_one_device_are_ordinary_updates():
    """They run in one process, without shards, and hold what they do on an emulated GPU."""
    steps = [case.changed_script for case in one_by_one(1)[2:]]
    wanted = Wanted("tiny", max_length=32, devices=1)
    predicted = run_jobs([(with_tensors, step, wanted) for step in steps])
    argv = ["--preset", "tiny", "--max-length", "32", "--max-steps", "3"]
    measured = [step.load().main(argv) for step in steps]
    assert not torch.distributed.is_initialized()
    for real, r in zip(measured, predicted, strict=True):
        for phase, labels in (("load", LOADED), ("train", TRAINED)):
            held = real[phase]["breakdown_gb"]
            for label in labels:  # kernels of attention and dropout keep other activations
                assert r["tensors"][phase][label] == round(held[label] * 1e9)
    micro, load, checkpointing = measured
    assert load["load"]["device_peak_gb"] < 0.3 * micro["load"]["device_peak_gb"]
    assert checkpointing["last_loss"] == load["last_loss"]


LARGE = {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64}
LARGE |= {"num_key_value_heads": 8, "num_hidden_layers": 8, "vocab_size": 128256}


def test_a_large_model_on_more_gpus_than_a_process_sees(tmp_path):
    """Eight layers as wide as those of a model with 70 billion weights, which never exist."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **LARGE}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ["--model", str(tmp_path), "--devices", "128", "--batch-size", "128"]
    (record,) = main(["11_llm/train", *options])
    # Of each layer: query and output, key and value of an eighth as many heads, three of the MLP.
    each = 8192 * 8192 * 2 * (1 + 1 / 8) + 3 * 8192 * 28672 + 2 * 8192
    weights = 8 * each + 8192 * 128256 + 8192
    assert record["world_size"] == 128
    on_host = record["train"]["host_breakdown_gb"]["parameters"] * 1e9
    assert on_host == pytest.approx(2 * weights / 128, rel=0.01)
    assert record["train"]["device_reserved_gb"] < 80
