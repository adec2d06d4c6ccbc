"""Promise: every stage preserves the computations that it is not meant to change."""

import ast
import json
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import SHARDED, run
from helpers.sharded import STEPS
from helpers.single_process import TINY, alone
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.utils.checkpoint import checkpoint
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from shared.lab.records import scripts

BLOCKS = 4  # of the tiny model
TEXT = "11_llm/train"


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


@pytest.mark.parametrize("name", [*SHARDED, *scripts.plain(SHARDED), TEXT])
def test_what_is_sharded_checkpointed_and_offloaded(name):
    module, calls = scripts.get(name).load(), []
    module.fully_shard = lambda unit, **options: calls.append((unit, options))
    with torch.device("meta"):
        if name == TEXT:
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
