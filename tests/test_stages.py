"""Promise: every stage needs less memory than the one before, and computes the same.

On a CPU and on an emulated GPU; what a stage is not meant to change, it preserves.
"""

import ast
import copy
import json
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import NAMES, PLAIN, SHARDED, SINGLE, TEXT, read_json, run
from helpers.emulated import NEEDS
from helpers.predictions import assert_same_tensors, predict_all
from helpers.sharded import STEPS
from helpers.single_process import TINY, alone
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.utils.checkpoint import checkpoint
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from shared.lab.predict.stage import MEANINGLESS
from shared.lab.records import scripts
from shared.metrics import ON_CPU

BLOCKS = 4  # of the tiny model


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Observations of four processes in stages 08 to 11: a list of {name and kind: seen}."""
    out = tmp_path_factory.mktemp("sharded") / "seen.json"
    run("tests/helpers/sharded.py", out)
    return read_json(out)


@pytest.fixture(scope="module")
def measured(sharded):
    """The measurements of every stage after three updates, {script: record}."""
    found = {name: alone(name)[1] for name in [*SINGLE, "11_llm/before"]}
    return {**found, **{n: sharded[0][f"{n} as is"] for n in [*SHARDED, "11_llm/train"]}}


@pytest.fixture(scope="module")
def predicted():
    """Predictions of every stage, {script: record}."""
    return predict_all(NAMES + TEXT, "tiny")


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


def test_empty_init_changes_no_loss():
    before, after = (alone(name)[0] for name in ("06_sgd/train", "07_init_module/train"))
    assert after == before, f"07: losses {after} are not those of 06, {before}"


def function(name, wanted):
    """Return the code of a function of a script, without comments and the launcher."""
    tree = ast.parse(scripts.get(name).path.read_text())
    (found,) = (n for n in tree.body if getattr(n, "name", None) == wanted)
    return ast.unparse(found).replace(", launcher='torchrun'", "")


@pytest.mark.parametrize("name", [*SHARDED, *scripts.plain(SHARDED)])
@pytest.mark.parametrize("wanted", ["train_step", "main"])
def test_updates_on_several_devices_are_those_of_one(name, wanted):
    before = f"07_init_module/{name.rpartition('/')[2]}"
    same = function(name, wanted) == function(before, wanted)
    assert same, f"{name}: {wanted}() is not that of {before}; sharding is no part of it"


class Mesh:
    """Stand-in for a mesh of devices."""

    def __init__(self, device_type):
        self.device_type = device_type

    def __getitem__(self, name):
        return f"mesh of {name}"


@pytest.mark.parametrize("name", [*SHARDED, *scripts.plain(SHARDED), TEXT[1]])
def test_what_is_sharded_checkpointed_and_offloaded(name):
    module, calls = scripts.get(name).load(), []
    module.fully_shard = lambda unit, **options: calls.append((unit, options))
    with torch.device("meta"):
        if name in TEXT:
            model = DistilBertForSequenceClassification(DistilBertConfig(n_layers=BLOCKS))
            blocks = [*model.distilbert.transformer.layer]
        else:
            args = SimpleNamespace(model="vit_tiny", image_px=32)
            model = module.models.vit(args, SimpleNamespace(classes=range(10)))
            blocks = [*model.encoder.layers]
    # Shards are on the devices of the mesh, here the CPU, or in spite of others on the host.
    module.parallelize(model, Mesh("meta" if name >= "10" else "cpu"))
    wrong = f"{name}: fully_shard() is for each block, then for the model"
    assert [unit for unit, _ in calls] == [*blocks, model], wrong
    offloaded = [isinstance(x.get("offload_policy"), CPUOffloadPolicy) for _, x in calls]
    wanted = [name >= "10"] * (BLOCKS + 1)
    assert offloaded == wanted, f"{name}: offloaded are {offloaded}, and should be {wanted}"
    checkpointed = [getattr(b.forward, "func", None) is checkpoint for b in blocks]
    wanted = [name >= "09"] * BLOCKS
    assert checkpointed == wanted, f"{name}: checkpointed are {checkpointed}, not {wanted}"
    devices = {p.device.type for p in model.parameters()}
    where = "the host" if name >= "10" else "the device"
    assert devices == {"cpu"}, f"{name}: shards have no memory on {where}, but are on {devices}"


@pytest.mark.parametrize("stage", SHARDED)
def test_every_process_holds_a_quarter(sharded, stage):
    seen = [rank[f"{stage} as is"] for rank in sharded]
    assert {tuple(s["dtypes"]) for s in seen} == {("torch.bfloat16",)}
    total = 0
    for by_rank in zip(*(s["shapes"] for s in seen)):
        shape, shares = by_rank[0][0], [local for _, local in by_rank]
        total += math.prod(shape)
        assert sum(shares) == math.prod(shape)  # all of them are DTensors
        # FSDP2 divides the first dimension: position embedding and class token, (1, ...), stay
        # whole on rank 0.
        if shape[0] % 4 == 0:
            assert set(shares) == {math.prod(shape) / 4}
    assert len({hashed for s in seen for hashed in s["bytes"]}) == 1  # before and after training
    held = seen[0]["train"]["breakdown_gb"]["parameters"] * 1e9 / 2  # two bytes each
    assert held == pytest.approx(total / 4, rel=0.05)


def test_sharded_stages_reach_the_same_losses(sharded):
    seen = [sharded[0][f"{stage} as is"]["losses"] for stage in SHARDED]
    assert len(seen[0]) == STEPS and seen[0][0] > seen[0][-1]
    assert seen[1] == seen[0], f"09: losses {seen[1]} are not those of 08, {seen[0]}"
    assert seen[2] == seen[0], f"10: losses {seen[2]} are not those of 08, {seen[0]}"


def test_several_devices_are_as_one_in_fp32(sharded):
    one, record = alone("07_init_module/train", fp32=True)
    assert record["precision"] == "32-true"
    several = sharded[0][f"{SHARDED[0]} in fp32"]
    wrong = f"{SHARDED[0]}: the mean losses of four processes are not those of one, in 07"
    assert several["losses"] == pytest.approx(one, rel=1e-4), wrong
    assert several["test_accuracy"] == record["test_accuracy"]


def test_offload_leaves_everything_on_the_host(sharded):
    for rank in sharded:
        assert rank["10_offload/train as is"]["parameters_on"] == ["cpu"]
        assert rank["10_offload/train as is"]["grads"] == ["cpu"]


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory):
    """A few updates of 10 on one device: (output, record)."""
    file = tmp_path_factory.mktemp("one") / "record.jsonl"
    options = [*TINY, "--devices", 1, "--max-steps", STEPS, "--record", file]
    return run("10_offload/train.py", *options), json.loads(file.read_text())


def test_one_device_is_enough(on_one_device):
    # On one device, the loop runs over four micro-batches, and the effective batch stays 16.
    printed, one = on_one_device
    assert one["world_size"] == 1 and "x 4" not in printed
    last_loss = alone("07_init_module/train")[1]["last_loss"]
    assert one["last_loss"] == pytest.approx(last_loss, rel=1e-2)


def test_one_device_gathers_its_own_weights(on_one_device):
    """One process gathers nothing from others, but its copies of weights are not activations."""
    held = on_one_device[1]["train"]["breakdown_gb"]
    # The inputs of the four blocks: 4 pictures of 65 tokens, 96 wide, in bf16.
    assert held["activations"] < 4.1 * 4 * 65 * 96 * 2 / 1e9
    assert held["gathered"] > held["recomputed"] / 2


def test_plain_without_torchrun_is_one_process(tmp_path):
    record = tmp_path / "record.jsonl"
    printed = run("08_fsdp/plain.py", *TINY, "--max-steps", STEPS, "--record", record)
    assert "one process; torchrun --nproc-per-node 4 08_fsdp/plain.py starts more" in printed
    one, last_loss = json.loads(record.read_text()), alone("07_init_module/train")[1]["last_loss"]
    assert one["world_size"] == 1 and one["last_loss"] == pytest.approx(last_loss, rel=1e-2)
