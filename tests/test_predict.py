"""Promise: a prediction is what would be measured, and device memory falls at every stage."""

import pytest
from conftest import NAMES, PLAIN, ROOT, SHARDED
from simulations import near, predicted, simulated

from shared.lessons import stored

MIB = 2**20


@pytest.fixture(scope="module")
def tensors():
    """Predictions for a GPU that count the bytes of tensors, which can be worked out by hand."""
    names = ["02_mixed_precision/train", "09_act_ckpt/train", "10_offload/train"]
    return {
        "full": stored.tensors(),
        "tiny": simulated(names, "gpu", "tiny", tensors_only=True),
    }


def test_tensors_are_as_recorded():
    names = ["04_batchsize/train", "10_offload/train"]
    for name, now in simulated(names, "gpu", "full", tensors_only=True).items():
        then = stored.tensors()[name]
        same = now["versions"]["torch"] == then["versions"]["torch"]
        for peak in ("device_peak_gb", "device_reserved_gb", "host_peak_gb"):
            assert now["train"][peak] == near(then["train"][peak], same)
        assert now["as_torch"] is None and "workspaces" not in now["train"]["breakdown_gb"]


@pytest.mark.parametrize("stage", NAMES)
def test_equals_what_is_measured_to_the_byte(ladder, on_cpu, stage):
    for phase in ("load", "train"):
        assert (
            on_cpu[stage][phase] == ladder[2][stage][phase]
        )  # with the breakdown, category by category


def test_one_device_equals_what_is_measured_to_the_byte(on_one_device):
    measured = on_one_device[1]
    record = simulated(["10_offload/train"], "cpu", "tiny", devices=1)["10_offload/train"]
    assert record["load"] == measured["load"] and record["train"] == measured["train"]
    # One process gathers nothing from others, but its copies of whole weights are no activations:
    # these are the inputs of the four blocks, 4 pictures of 65 tokens, 96 wide, in bf16.
    held = record["train"]["breakdown_gb"]
    assert held["activations"] < 4.1 * 4 * 65 * 96 * 2 / 1e9
    assert held["gathered"] > record["train"]["breakdown_gb"]["recomputed"] / 2


def test_is_a_record_without_what_was_not_measured(ladder, on_cpu):
    for stage in NAMES:
        measured, record = ladder[2][stage], on_cpu[stage]
        assert set(measured) - set(record) == {"fingerprint", "ladder"}
        for key in ("model", "world_size", "precision", "batch_size", "micro_batch_size"):
            assert record[key] == measured[key]
        for key in (
            "images_per_second",
            "train_seconds",
            "test_accuracy",
            "first_loss",
            "last_loss",
        ):
            assert record[key] is None


def test_plain_is_predicted_as_with_fabric(on_gpu):
    # Of the other stages test_equivalence.py shows that plain PyTorch holds the same.
    plain = predicted("--plain", "--preset", "tiny", "02", "07", "08", "10")
    assert list(plain) == [PLAIN[n] for n in (1, 6, 7, 9)]
    for script, record in plain.items():
        stage = script.replace("/plain", "/train")
        fabric = on_gpu["tiny"][stage]
        if stage == "07_init_module/train":  # the one difference: test_equivalence.py says why
            extra = fabric["load"]["breakdown_gb"].get("temporaries", 0)
            peaks = (r["load"]["device_peak_gb"] for r in (fabric, record))
            assert next(peaks) - next(peaks) == pytest.approx(extra)
        else:
            assert record["load"] == fabric["load"]
            assert record["host_breakdown_gb"] == fabric["host_breakdown_gb"]
        for same in ("train", "peak_at", "precision", "world_size"):
            assert record[same] == fabric[same], (script, same)


@pytest.mark.parametrize("preset", ["tiny", "full"])
@pytest.mark.parametrize("before, after", list(zip(NAMES, NAMES[1:])))
def test_device_memory_falls(on_gpu, preset, before, after):
    before, after = on_gpu[preset][before], on_gpu[preset][after]
    if after["script"] == "07_init_module/train":
        # It is about loading, where it saves memory of the host.
        assert after["load"]["host_peak_gb"] < 0.01 * before["load"]["host_peak_gb"]
        assert after["train"] == before["train"]
    else:
        assert after["train"]["device_peak_gb"] < before["train"]["device_peak_gb"]


@pytest.mark.parametrize("preset", ["tiny", "full"])
def test_offloaded_shards_are_on_the_host(tensors, preset):
    before, after = tensors[preset]["09_act_ckpt/train"], tensors[preset]["10_offload/train"]
    shards = before["train"]["breakdown_gb"]["parameters"]
    host = after["host_breakdown_gb"]["train"]
    assert host["parameters"] == host["gradients"] == shards
    assert after["train"]["host_peak_gb"] == sum(host.values()) > before["train"]["host_peak_gb"]
    assert not {"parameters", "gradients"} & set(after["train"]["breakdown_gb"])


@pytest.mark.parametrize("preset", ["tiny", "full"])
def test_figures_agree_with_each_other(on_gpu, preset):
    for record in on_gpu[preset].values():
        for phase in ("load", "train"):
            p = record[phase]
            assert sum(p["breakdown_gb"].values()) == pytest.approx(p["device_peak_gb"], rel=1e-9)
            assert (
                p["device_peak_gb"]
                <= p["device_reserved_gb"]
                < 3 * p["device_peak_gb"] + 2 * 20 * MIB / 1e9
            )
        at = record["peak_at"]["train"]
        assert at["phase"] in ("forward", "backward", "step")
        assert at["module"].startswith(("encoder.layers.encoder_layer_", "distilbert."))
        assert record["peak_at"]["load"]["phase"] == "load"


def test_weights_by_hand(tensors):
    # ViT-L/16 at 224 px for 10 classes: https://arxiv.org/abs/2010.11929, table 1
    width, layers, tokens = 1024, 24, 14 * 14 + 1
    block = 4 * width * width + 4 * width + 8 * width * width + 5 * width + 4 * width
    n = (
        layers * block
        + (3 * 16 * 16 + 1) * width
        + (tokens + 1) * width
        + 2 * width
        + (width + 1) * 10
    )
    held = {name: record["train"]["breakdown_gb"] for name, record in tensors["full"].items()}
    assert held["01_baseline/train"]["parameters"] == 4 * n / 1e9
    assert held["01_baseline/train"]["optimizer states"] == 8 * n / 1e9
    assert held["06_sgd/train"]["parameters"] == held["06_sgd/train"]["gradients"] == 2 * n / 1e9
    assert held["08_fsdp/train"]["parameters"] == pytest.approx(2 * n / 4 / 1e9, rel=0.01)
    assert tensors["full"]["06_sgd/train"]["load"]["host_peak_gb"] == 8 * n / 1e9


@pytest.mark.parametrize(
    "stage, images, nbytes, values",
    # In fp32, memory-efficient attention's output is copied before out_proj.
    [("01_baseline", 64, 4, 17), ("03_bf16", 64, 2, 16), ("06_sgd", 4, 2, 16)],
)
def test_activations_by_hand(tensors, stage, images, nbytes, values):
    """The pages of 01 and 03 count how many times its width a block keeps for each token."""
    kept = tensors["full"][f"{stage}/train"]["train"]["breakdown_gb"]["activations"] * 1e9
    layers, tokens, width = 24, 14 * 14 + 1, 1024
    assert kept == pytest.approx(values * width * tokens * images * nbytes * layers, rel=0.003)
    assert f"{values} × width" in (ROOT / stage / "README.md").read_text() or stage == "06_sgd"


@pytest.mark.parametrize("stage", NAMES)
def test_the_pages_show_what_is_predicted_today(on_gpu, stage):
    """The same figures as in the committed record; where PyTorch is another version, near them."""
    now, then = on_gpu["full"][stage], stored.predictions()[stage]
    same = now["versions"]["torch"] == then["versions"]["torch"]
    for phase in ("load", "train"):
        for name in ("device_peak_gb", "device_reserved_gb", "host_peak_gb"):
            assert now[phase][name] == near(then[phase][name], same)
    assert (
        not same
        or now["peak_at"] == then["peak_at"]
        and now["train"]["breakdown_gb"] == then["train"]["breakdown_gb"]
    )


def test_gradients_freed_late_lie_under_the_activations(tensors):
    names = NAMES[1:4:2]
    late = simulated(names, "gpu", "full", late_zero_grad=True, tensors_only=True)
    for name in names:
        more, less = late[name]["train"], tensors["full"][name]["train"]
        weights = less["breakdown_gb"]["parameters"]
        # The forward pass has all of them under it; the peak, just after it, has none any more.
        assert 0.8 * weights < more["device_peak_gb"] - less["device_peak_gb"] <= weights
        assert more["breakdown_gb"]["gradients"] == weights


def test_autocast_of_the_pretend_gpu_is_pytorchs(on_cpu, tensors):
    # Autocast for the pretend device is ours, for the CPU PyTorch's; both have the same lists.
    gpu, cpu = tensors["tiny"]["02_mixed_precision/train"], on_cpu["02_mixed_precision/train"]
    assert gpu["precision"] == "16-mixed" and cpu["precision"] == "bf16-mixed"
    for label, gb in cpu["train"]["breakdown_gb"].items():
        assert gpu["train"]["breakdown_gb"][label] == pytest.approx(gb, rel=0.005, abs=1e-7), label


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


def test_sharding_uses_streams_of_its_own(on_gpu):
    """Weights are gathered and gradients reduced on streams that share no idle memory."""
    idle = {
        name: r["train"]["device_reserved_gb"] / r["train"]["device_peak_gb"]
        for name, r in on_gpu["full"].items()
    }
    assert all((idle[name] > 1.3) == (name in SHARDED) for name in NAMES), idle
