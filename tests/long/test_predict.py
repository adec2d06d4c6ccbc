"""Promise: at full size, device memory falls at every stage and agrees with hand calculations.

Of a language model, every technique saves its part. Records at full size are the stored ones, of an
emulated A100; test_records_of_today.py makes some of them anew.
"""

import json

import pytest
import torch
from conftest import NAMES, SHARDED, TEXT
from helpers.emulated import NEEDS
from helpers.predictions import with_tensors

from shared.lab.predict.cases import one_by_one
from shared.lab.predict.command import main
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.records import stored

ON_GPU = stored.predictions()
# From 11_llm/before to 11_llm/train, a technique more in each.
STEPS = stored.text_records()[ON_GPU[TEXT[0]]["model"]][:7]
LOADED, TRAINED = ["parameters"], ["parameters", "gradients", "optimizer states", "inputs"]


@pytest.mark.parametrize("before, after", [*zip(NAMES, NAMES[1:]), TEXT])
def test_device_memory_falls(before, after):
    before, after = ON_GPU[before], ON_GPU[after]
    if after["script"] == "07_init_module/train":
        # This stage is about loading, where it saves host memory.
        assert after["load"]["host_peak_gb"] < 0.01 * before["load"]["host_peak_gb"]
        assert after["train"] == before["train"]
    else:
        assert after["train"]["device_peak_gb"] < before["train"]["device_peak_gb"]


def test_weights_by_hand():
    # ViT-L/16 at 224 px for 10 classes: https://arxiv.org/abs/2010.11929, table 1
    width, layers, tokens = 1024, 24, 14 * 14 + 1
    block = 4 * width * width + 4 * width + 8 * width * width + 5 * width + 4 * width
    beside = (3 * 16 * 16 + 1) * width + (tokens + 1) * width + 2 * width + (width + 1) * 10
    n = layers * block + beside
    held = {name[:2]: record["train"]["breakdown_gb"] for name, record in ON_GPU.items()}
    assert held["01"]["parameters"] == 4 * n / 1e9
    assert held["01"]["optimizer states"] == 8 * n / 1e9
    assert held["06"]["parameters"] == held["06"]["gradients"] == 2 * n / 1e9
    assert held["08"]["parameters"] == pytest.approx(2 * n / 4 / 1e9, rel=0.01)
    assert ON_GPU["06_sgd/train"]["load"]["host_peak_gb"] == 8 * n / 1e9
    # The shards of 10 and their gradients are on the host.
    host = ON_GPU["10_offload/train"]["train"]["host_breakdown_gb"]
    assert host["parameters"] == host["gradients"] == held["08"]["parameters"]
    assert not {"parameters", "gradients"} & set(held["10"])


@pytest.mark.parametrize(
    "stage, images, nbytes, values",
    # In fp32, memory-efficient attention's output is copied before out_proj.
    [("01_baseline", 64, 4, 17), ("03_bf16", 64, 2, 16), ("06_sgd", 4, 2, 16)],
)
def test_activations_by_hand(stage, images, nbytes, values):
    """A block keeps `values` times its width per token, as the pages of 01 and 03 count."""
    kept = ON_GPU[f"{stage}/train"]["train"]["breakdown_gb"]["activations"] * 1e9
    layers, tokens, width = 24, 14 * 14 + 1, 1024
    assert kept == pytest.approx(values * width * tokens * images * nbytes * layers, rel=0.003)


def test_sharding_uses_streams_of_its_own():
    """Weights are gathered and gradients reduced on streams that share no idle memory."""
    train = {name: ON_GPU[name]["train"] for name in NAMES}
    idle = {name: p["device_reserved_gb"] / p["device_peak_gb"] for name, p in train.items()}
    assert all((idle[name] > 1.3) == (name in SHARDED) for name in NAMES), idle


def test_every_technique_saves_what_it_is_for():
    device, host = ([r["train"][f"{k}_peak_gb"] for r in STEPS] for k in ("device", "host"))
    load_host = [r["load"]["host_peak_gb"] for r in STEPS]
    bf16, micro, load, shard, checkpointing, offload = range(1, 7)
    for n in (bf16, micro, shard, checkpointing, offload):
        assert device[n] < 0.9 * device[n - 1]
    assert device[load] == device[load - 1] and load_host[load] < 0.01 * load_host[load - 1]
    held = [r["train"]["breakdown_gb"] for r in STEPS]
    assert held[bf16]["parameters"] == pytest.approx(held[0]["parameters"] / 2, rel=0.001)
    assert held[micro]["activations"] < held[bf16]["activations"] / 3
    quarter = held[load]["optimizer states"] / 4
    assert held[shard]["optimizer states"] == pytest.approx(quarter, rel=0.05)
    assert "recomputed" in held[checkpointing] and "recomputed" not in held[shard]
    assert not {"parameters", "gradients", "optimizer states"} & set(held[offload])
    assert host[offload] > 100 * host[checkpointing]


def test_the_way_starts_and_ends_at_the_scripts():
    same = "load train world_size batch_size micro_batch_size precision".split()
    for name, step in zip(TEXT, (STEPS[0], STEPS[-1])):
        assert [ON_GPU[name][key] for key in same] == [step[key] for key in same], name


@NEEDS
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


@NEEDS
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
