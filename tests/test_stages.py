"""Promise: every stage needs less memory than the stage before, on a CPU and an emulated GPU."""

import copy

import pytest
from conftest import NAMES, PLAIN, SHARDED, SINGLE, TEXT, once
from helpers.emulated import NEEDS
from helpers.predictions import assert_same_tensors, predict_all
from helpers.sharded import STEPS
from helpers.single_process import alone

from shared.lab.predict.stage import MEANINGLESS
from shared.metrics import ON_CPU


@pytest.fixture(scope="module")
def measured(sharded):
    """The measurements of every stage after three updates, {script: record}."""
    found = {name: alone(name)[1] for name in [*SINGLE, "11_llm/before"]}
    return {**found, **{n: sharded[0][f"{n} as is"] for n in [*SHARDED, "11_llm/train"]}}


@pytest.fixture(scope="session")
def predicted(tmp_path_factory):
    """Predictions of every stage, {script: record}."""
    return once(tmp_path_factory, "stages.json", lambda: predict_all(NAMES + TEXT, "tiny"))


def peaks(measured, phase, *names):
    return [measured[name][phase]["device_peak_gb"] for name in names]


@pytest.mark.parametrize("before, after", [*zip(NAMES[:8], NAMES[1:9]), TEXT])
def test_peak_falls(measured, before, after):
    """On a CPU, where device and host are one, 10 needs as much as 09; see test_predict.py."""
    more, less = peaks(measured, "train", before, after)
    if after == "07_init_module/train":  # this stage is about loading; test_rules.py has the bytes
        assert less <= more, f"{after} needs {less} GB in training, more than {before}, {more}"
        return
    assert less < more, f"{after} needs {less} GB in training, no less than {before}, {more}"


# What a stage changes at the peak of training: (stage, category, least and most of the part that it
# has of the stage before).
SAVES = [
    ("02", "parameters", 1, 1),
    ("02", "activations", 0.5, 0.65),
    ("03", "parameters", 0.5, 0.5),
    ("03", "optimizer states", 0.5, 0.501),
    ("04", "activations", 0.25, 0.253),
    ("05", "activations", 0.25, 0.253),
    ("06", "optimizer states", 0, 0),
    ("08", "parameters", 0.25, 0.263),
    ("09", "activations", 0, 0.25),
]


@pytest.mark.parametrize("stage, category, least, most", SAVES)
def test_each_stage_saves_what_its_page_says(measured, stage, category, least, most):
    held = {name[:2]: measured[name]["train"]["breakdown_gb"] for name in NAMES}
    found = held[stage].get(category, 0) / held[f"{int(stage) - 1:02}"][category]
    wrong = f"{stage} has {found:.4f} of the {category} of the stage before, not {least} to {most}"
    assert least - 1e-9 <= found <= most + 1e-9, wrong


def test_only_checkpointing_computes_activations_again(measured):
    held = {name[:2]: measured[name]["train"]["breakdown_gb"] for name in NAMES}
    again = [stage for stage in held if "recomputed" in held[stage]]
    assert again == ["09", "10"], f"these stages compute activations again: {again}"


def assert_adds_up(phase):
    held, peak = sum(phase["breakdown_gb"].values()), phase["device_peak_gb"]
    assert held == pytest.approx(peak, rel=1e-9), f"the categories are {held} GB, the peak {peak}"


@pytest.mark.parametrize("name", NAMES + TEXT)
def test_what_is_measured_adds_up_to_the_peak(measured, name):
    for phase in ("load", "train"):
        found = measured[name][phase]
        assert_adds_up(found)
        # A CPU has no caching allocator, and a figure that is not measured is None, never 0.
        assert found["device_reserved_gb"] is None and found["host_peak_gb"] is None


@NEEDS
@pytest.mark.parametrize("name", NAMES + TEXT)
def test_the_emulated_gpu_holds_the_tensors_that_real_numbers_need(measured, predicted, name):
    assert_same_tensors(name, measured[name], predicted[name])


@NEEDS
@pytest.mark.parametrize("name", NAMES + TEXT)
def test_what_is_predicted_adds_up_to_the_peak(predicted, name):
    for phase in ("load", "train"):
        found = predicted[name][phase]
        assert_adds_up(found)
        assert found["device_peak_gb"] <= found["device_reserved_gb"]
        assert sum(found["host_breakdown_gb"].values()) == pytest.approx(found["host_peak_gb"])


@NEEDS
def test_a_prediction_is_a_record_without_what_only_a_gpu_computes(measured, predicted):
    for name in [*SINGLE, "11_llm/before"]:
        there, here = measured[name], predicted[name]
        assert set(there) - set(here) == set(there) & {*MEANINGLESS}
        assert set(there["train"]) == set(here["train"])
        assert ON_CPU.get(here["precision"], here["precision"]) == there["precision"]


def loads_as_much(stage, fabric, plain):
    if stage != "07_init_module/train":
        return fabric == plain
    # Fabric skips the initialization of weights, except trunc_normal_, which in newer versions of
    # PyTorch needs masks as large as the weight; on the meta device nothing is initialized.
    extra = fabric["breakdown_gb"].pop("temporaries", 0)
    small = 0 <= extra < 0.02 * plain["device_peak_gb"]
    return small and fabric["breakdown_gb"] == plain["breakdown_gb"]


@pytest.mark.parametrize("stage, script", list(zip(SINGLE, PLAIN)))
def test_plain_is_fabric_in_loss_and_bytes(stage, script):
    (there, fabric), (here, plain) = alone(stage), alone(script)
    # In 16 bits too: the same operations in the same order.
    assert len(here) == STEPS
    assert here == there, f"{script}: losses {here} are not those of {stage}, {there}"
    said = f"{script} loads with other memory than {stage}"
    assert loads_as_much(stage, copy.deepcopy(fabric["load"]), plain["load"]), said
    for same in ("train", "precision", "batch_size", "micro_batch_size", "dataset"):
        assert plain[same] == fabric[same], f"{script}: {same} is not that of {stage}"
    for said in ("train_accuracy", "val_accuracy", "test_accuracy"):
        # 02 evaluates in 32 bits, Fabric under autocast.
        other = 0.02 if stage == "02_mixed_precision/train" and said != "train_accuracy" else 0
        assert plain[said] == pytest.approx(fabric[said], abs=other)


@pytest.mark.parametrize(
    "stage, kind", [*((stage, "as is") for stage in SHARDED), (SHARDED[0], "in fp32")]
)
def test_plain_is_fabric_on_four_processes(sharded, stage, kind):
    """The same losses, bytes and shards, and the same devices of gradients and parameters."""
    plain = stage.replace("/train", "/plain")
    for rank in sharded:
        here, there = rank[f"{plain} {kind}"], rank[f"{stage} {kind}"]
        other = [key for key in there if here[key] != there[key]]
        assert not other, f"{plain}, {kind}: {other} are not those of {stage}"
