"""Promise: at full size, device memory falls at every stage and agrees with hand calculations."""

import pytest
from conftest import NAMES, SHARDED, TEXT, once
from helpers.emulated import NEEDS
from helpers.predictions import predicted

pytestmark = NEEDS

MIB = 2**20


@pytest.fixture(scope="session")
def on_gpu(tmp_path_factory):
    """The ladder at full size on an emulated A100, {script: record}."""
    return once(tmp_path_factory, "full.json", lambda: predicted(*NAMES, *TEXT))


@pytest.mark.parametrize("before, after", [*zip(NAMES, NAMES[1:]), TEXT])
def test_device_memory_falls(on_gpu, before, after):
    before, after = on_gpu[before], on_gpu[after]
    if after["script"] == "07_init_module/train":
        # This stage is about loading, where it saves host memory.
        assert after["load"]["host_peak_gb"] < 0.01 * before["load"]["host_peak_gb"]
        assert after["train"] == before["train"]
    else:
        assert after["train"]["device_peak_gb"] < before["train"]["device_peak_gb"]


def test_weights_by_hand(on_gpu):
    # ViT-L/16 at 224 px for 10 classes: https://arxiv.org/abs/2010.11929, table 1
    width, layers, tokens = 1024, 24, 14 * 14 + 1
    block = 4 * width * width + 4 * width + 8 * width * width + 5 * width + 4 * width
    beside = (3 * 16 * 16 + 1) * width + (tokens + 1) * width + 2 * width + (width + 1) * 10
    n = layers * block + beside
    held = {name[:2]: record["train"]["breakdown_gb"] for name, record in on_gpu.items()}
    assert held["01"]["parameters"] == 4 * n / 1e9
    assert held["01"]["optimizer states"] == 8 * n / 1e9
    assert held["06"]["parameters"] == held["06"]["gradients"] == 2 * n / 1e9
    assert held["08"]["parameters"] == pytest.approx(2 * n / 4 / 1e9, rel=0.01)
    assert on_gpu["06_sgd/train"]["load"]["host_peak_gb"] == 8 * n / 1e9
    # The shards of 10 and their gradients are on the host.
    host = on_gpu["10_offload/train"]["train"]["host_breakdown_gb"]
    assert host["parameters"] == host["gradients"] == held["08"]["parameters"]
    assert not {"parameters", "gradients"} & set(held["10"])


@pytest.mark.parametrize(
    "stage, images, nbytes, values",
    # In fp32, memory-efficient attention's output is copied before out_proj.
    [("01_baseline", 64, 4, 17), ("03_bf16", 64, 2, 16), ("06_sgd", 4, 2, 16)],
)
def test_activations_by_hand(on_gpu, stage, images, nbytes, values):
    """A block keeps `values` times its width per token, as the pages of 01 and 03 count."""
    kept = on_gpu[f"{stage}/train"]["train"]["breakdown_gb"]["activations"] * 1e9
    layers, tokens, width = 24, 14 * 14 + 1, 1024
    assert kept == pytest.approx(values * width * tokens * images * nbytes * layers, rel=0.003)


def test_sharding_uses_streams_of_its_own(on_gpu):
    """Weights are gathered and gradients reduced on streams that share no idle memory."""
    train = {name: on_gpu[name]["train"] for name in NAMES}
    idle = {name: p["device_reserved_gb"] / p["device_peak_gb"] for name, p in train.items()}
    assert all((idle[name] > 1.3) == (name in SHARDED) for name in NAMES), idle
