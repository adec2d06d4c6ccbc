"""Promise: a prediction tells what plain PyTorch, other sizes and other habits need, too."""

import pytest
from conftest import NAMES, PLAIN
from simulations import simulated


def test_plain_is_predicted_as_with_fabric():
    # Of the other stages test_stages.py shows that plain PyTorch holds the same.
    chosen = [1, 6, 9]
    fabric_records = simulated([NAMES[n] for n in chosen], "gpu", "tiny")
    for script, record in simulated([PLAIN[n] for n in chosen], "gpu", "tiny").items():
        fabric = fabric_records[script.replace("/plain", "/train")]
        if script == "07_init_module/plain":  # the one difference: test_stages.py says why
            extra = fabric["load"]["breakdown_gb"].get("temporaries", 0)
            more, less = (r["load"]["device_peak_gb"] for r in (fabric, record))
            assert more - less == pytest.approx(extra)
        else:
            assert record["load"] == fabric["load"]
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


def test_other_sizes():
    names = ("04_batchsize/train", "08_fsdp/train")
    same = {"model": "vit_b_16", "tensors_only": True}
    small = simulated(names, "gpu", "full", batch_size=8, **same)
    sizes = {"batch_size": 16, "micro_batch_size": 2, "devices": 8, "image_px": 384}
    large = simulated(names, "gpu", "full", **sizes, **same)

    def grown(name, what):
        held, more = (r[name]["train"]["breakdown_gb"][what] for r in (small, large))
        return more / held

    tokens, more_tokens = (px**2 // 16**2 + 1 for px in (224, 384))
    assert grown(names[0], "activations") == pytest.approx(2 * more_tokens / tokens, rel=0.01)
    # 2 images per device either way. Of the weights some are not divided.
    assert grown(names[1], "inputs") == pytest.approx((384 / 224) ** 2, rel=0.001)
    assert grown(names[1], "parameters") == pytest.approx(1 / 2, rel=0.05)
