"""Promise: a prediction tells what plain PyTorch, other sizes and other habits need, too."""

import pytest
from conftest import NAMES, PLAIN
from simulations import simulated
from versions import only_here

from shared.records import stored


def test_plain_is_predicted_as_with_fabric():
    # Of the other stages test_stages.py shows that plain PyTorch holds the same.
    chosen = [1, 6, 7, 9]
    fabric_records = simulated([NAMES[n] for n in chosen], "gpu", "tiny")
    for script, record in simulated([PLAIN[n] for n in chosen], "gpu", "tiny").items():
        stage = script.replace("/plain", "/train")
        fabric = fabric_records[stage]
        if stage == "07_init_module/train":  # the one difference: test_stages.py says why
            extra = fabric["load"]["breakdown_gb"].get("temporaries", 0)
            peaks = (r["load"]["device_peak_gb"] for r in (fabric, record))
            assert next(peaks) - next(peaks) == pytest.approx(extra)
        else:
            assert record["load"] == fabric["load"]
            assert record["host_breakdown_gb"] == fabric["host_breakdown_gb"]
        for same in ("train", "peak_at", "precision", "world_size"):
            assert record[same] == fabric[same], (script, same)


def test_gradients_freed_late_lie_under_the_activations():
    names = NAMES[1:4:2]
    tensors = simulated(names, "gpu", "full", tensors_only=True)
    late = simulated(names, "gpu", "full", late_zero_grad=True, tensors_only=True)
    for name in names:
        more, less = late[name]["train"], tensors[name]["train"]
        weights = less["breakdown_gb"]["parameters"]
        # The forward pass has all of them under it; the peak, just after it, has none any more.
        assert 0.8 * weights < more["device_peak_gb"] - less["device_peak_gb"] <= weights
        assert more["breakdown_gb"]["gradients"] == weights


def test_what_if():
    names = ("04_batchsize/train", "08_fsdp/train")
    small = simulated(names, "gpu", "full", model="vit_b_16", batch_size=8, tensors_only=True)
    large = simulated(
        names,
        "gpu",
        "full",
        model="vit_b_16",
        batch_size=16,
        micro_batch_size=2,
        devices=8,
        image_px=384,
        tensors_only=True,
    )
    held, more = ([r[s]["train"]["breakdown_gb"] for s in names] for r in (small, large))
    tokens = (384 // 16) ** 2 + 1, 14 * 14 + 1
    assert more[0]["activations"] == pytest.approx(
        held[0]["activations"] * 2 * tokens[0] / tokens[1], rel=0.01
    )
    assert more[1]["inputs"] == pytest.approx(
        held[1]["inputs"] * (384 / 224) ** 2, rel=0.001
    )  # 2 images per device either way
    assert more[1]["parameters"] == pytest.approx(
        held[1]["parameters"] / 2, rel=0.05
    )  # some are not divided
    assert (
        large["08_fsdp/train"]["world_size"] == 8
        and large["08_fsdp/train"]["micro_batch_size"] == 2
    )
    assert large["04_batchsize/train"]["micro_batch_size"] is None


def test_the_record_of_tensors_is_what_is_predicted_today():
    names = ["04_batchsize/train", "10_offload/train"]
    found = simulated(names, "gpu", "full", tensors_only=True)
    for name, now in found.items():
        then = stored.tensors()[name]
        assert now["as_torch"] is None and "workspaces" not in now["train"]["breakdown_gb"]
        only_here(then)
        for peak in ("device_peak_gb", "device_reserved_gb", "host_peak_gb"):
            assert now["train"][peak] == pytest.approx(then["train"][peak], rel=1e-9)
