"""Promise: the full-size memory of side roads agrees with hand calculations.

A new road needs no line here, since tests/lab/test_side_road_records.py reads its docstring. These
tests calculate what no docstring can say in a word, such as the bytes of one category.
"""

import pytest
from conftest import ROADS
from helpers.predictions import tensors_gb
from helpers.sharded import TENSOR_PARALLEL

from shared.lab.lessons import side_roads
from shared.lab.records import scripts, stored

QUANTIZED = dict.fromkeys(("06_sgd/adam_8bit", "06_sgd/adam_8bit_bnb"), 1 + 4 / 256)
QUANTIZED["06_sgd/adam_4bit"] = 1 / 2 + 4 / 128
DEVICES = [name for name in ROADS if name.startswith("08_fsdp/")]


@pytest.mark.parametrize("name", QUANTIZED)
def test_states_in_fewer_bits_by_hand(name):
    now, before = (side_roads.records()[n]["train"] for n in (name, scripts.get(name).parent))
    held, held_before = map(tensors_gb, (now, before))
    weights = held_before["parameters"] / 2  # in bf16
    states = 2 * weights * QUANTIZED[name]
    assert held["optimizer states"] == pytest.approx(states, rel=0.01)
    for label in ("parameters", "gradients", "activations", "inputs"):
        assert held[label] == held_before[label]


def test_several_devices_by_hand():
    held = {
        name: side_roads.records()[name]["train"]["breakdown_gb"]
        for name in ("07_init_module/train", "08_fsdp/train", *DEVICES)
    }
    whole, sharded = (held[n]["parameters"] for n in ("07_init_module/train", "08_fsdp/train"))
    for label, times in (("parameters", 1), ("gradients", 2)):  # with the old buckets
        assert held["08_fsdp/ddp"][label] == pytest.approx(times * whole, rel=1e-6)
    assert held["08_fsdp/fp32_shards"]["parameters"] == pytest.approx(2 * sharded)
    for name in ("08_fsdp/one_unit", "08_fsdp/zero2"):
        assert held[name]["parameters"] == sharded
        assert held[name]["gathered"] > 0.9 * whole  # where the backward pass begins
    # A quarter of each MLP: all weights of its first layer, of its second all but the bias.
    tensor, one = held[TENSOR_PARALLEL], held["07_init_module/train"]
    width, layers, vector = 1024, 24, 2 * 4 * 197 * 1024  # bytes of 4 images in bf16
    mlps = 2 * layers * (2 * 4 * width * width + 4 * width) / 1e9
    for label in ("parameters", "gradients"):
        assert tensor[label] == pytest.approx(whole - 3 / 4 * mlps, rel=1e-6)
    # Of 16 vectors that a block keeps (page 03), 8 are in the MLP.
    saved = one["activations"] - tensor["activations"]
    assert saved == pytest.approx(layers * 3 / 4 * 8 * vector / 1e9, rel=0.03)
    saved = tensor["activations"] - held["08_fsdp/sequence_parallel"]["activations"]
    assert saved == pytest.approx(layers * 3 / 4 * 2 * vector / 1e9, rel=0.3)  # of norms
    # As one unit, the weights are gathered in a buffer of their size.
    assert held["08_fsdp/one_unit"]["gathered"] > 1.9 * whole


def test_selective_checkpointing_by_hand():
    """Two peaks are where the backward pass begins, two where most gradients are in memory."""
    held, at = {}, {}
    for name in ("train", "every_second", "keep_attention", "selective"):
        record = side_roads.records()[f"09_act_ckpt/{name}"]
        held[name] = record["train"]["breakdown_gb"]["activations"] * 1e9
        at[name] = int(record["peak_at"]["train"]["module"].split("_layer_")[1].split(".")[0])
    assert at == {"train": 1, "every_second": 22, "keep_attention": 1, "selective": 22}
    images, tokens, width = 4, 14 * 14 + 1, 1024
    vector = images * tokens * width * 2  # bf16
    # The inputs of two blocks are left, and with keep_attention the results of their attention.
    assert held["train"] == pytest.approx(2 * vector, rel=0.01)
    assert held["keep_attention"] == pytest.approx(2 * 2 * vector, rel=0.05)
    # The inputs of 12 blocks, and all of the other 11: 16 vectors, as page 03 counts them.
    assert held["every_second"] == pytest.approx((12 + 11 * 16) * vector, rel=0.01)
    # 23 blocks: the input; queries, keys and values; attention; its projection; the MLP's layers.
    assert held["selective"] == pytest.approx(23 * (1 + 3 + 1 + 1 + 4 + 1) * vector, rel=0.03)


def test_lora_by_hand():
    names = ("before", "lora", "qlora")
    held = {n: side_roads.records()[f"11_llm/{n}"]["train"]["breakdown_gb"] for n in names}
    width, layers, rank = 768, 6, 8
    # In each block: queries, keys, values, the output projection, and the two layers of the MLP.
    linear = layers * (4 * width * width + 2 * width * 4 * width)
    adapters = layers * rank * (4 * 2 * width + 2 * 5 * width)
    head = (width + 1) * width + (width + 1) * 2
    fp32 = 4 / 1e9
    more = held["lora"]["parameters"] - held["before"]["parameters"]
    assert more == pytest.approx(adapters * fp32)
    for name in ("lora", "qlora"):
        states = 2 * (adapters + head) * fp32
        assert held[name]["optimizer states"] == pytest.approx(states, rel=1e-3)
        assert held[name]["activations"] > 0.9 * held["before"]["activations"]
    less = held["lora"]["parameters"] - held["qlora"]["parameters"]
    # Half a byte per weight, and a scale of one byte per 64 weights.
    assert less == pytest.approx((4 - 1 / 2 - 1 / 64) * linear / 1e9, rel=0.001)


def test_small_updates_are_lost_in_bf16():
    for r in stored.read(stored.LOST_UPDATES):
        assert (r["changed"] < 0.2) == (r["script"] == "03_bf16/train")
        assert r["changed"] > 0.99 or r["script"] != "01_baseline/train"
