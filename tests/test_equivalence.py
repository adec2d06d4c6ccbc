"""Promise: every stage preserves the computations that it is not meant to change."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import SHARDED, run
from helpers.sharded import STEPS, TENSOR_PARALLEL
from helpers.single_process import TINY, alone, losses, one_update

from shared.images import cli, models
from shared.lab.records import scripts
from shared.metrics import Evaluator


def add_sums(*arguments):
    images, labels, meter = arguments[-3:]
    meter.add(images.sum(), torch.zeros(len(labels), 10), labels)


def test_orders_of_two_epochs_differ_and_agree_between_fabric_and_plain(monkeypatch):
    monkeypatch.setattr(Evaluator, "value", lambda *_: 0.5)
    seen = {}
    for name in ("01_baseline/train", "01_baseline/plain"):
        module = scripts.get(name).load()
        module.train_step = add_sums  # only the order of the data matters here
        seen[name] = losses(module, "--epochs", "2")[0]
    fabric, plain = seen.values()
    assert fabric == plain and len(plain) == 42
    assert plain[:21] != plain[21:]


@pytest.mark.parametrize("batch", [16, 13, 3])
def test_micro_batches_give_the_gradients_of_the_full_batch(batch):
    torch.manual_seed(0)
    args = cli.parse(scripts.get("05_grad_accum/train").path, TINY, 16)
    model = models.vit(args, SimpleNamespace(classes=range(10))).double()
    # The head starts at zero, which would hide every other gradient.
    torch.nn.init.normal_(model.heads.head.weight, std=0.1)
    images, labels = torch.randn(batch, 3, 32, 32, dtype=torch.double), torch.arange(batch) % 10
    names = ("04_batchsize/train", "05_grad_accum/train")
    whole, parts = (one_update(name, model, images, labels) for name in names)
    torch.testing.assert_close(whole.logits, parts.logits)
    assert max(g.abs().max() for g in whole.grads) > 1e-3
    wrong = "05: a micro-batch's loss counts by its share of the images in this batch, "
    wrong += f"which may be the last, smaller one (here {batch})"
    torch.testing.assert_close(whole.loss, parts.loss, msg=wrong)
    torch.testing.assert_close(whole.grads, parts.grads, msg=wrong)


def test_the_gradients_of_02_are_scaled_and_unscaled_once():
    """A power of two is multiplied and divided exactly."""
    grads = []
    for scaled in (False, True):
        module = scripts.get("02_mixed_precision/plain").load()
        module.SCALER = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=scaled)
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(lambda *_: grads.append(model.weight.grad.clone()))
        meter = SimpleNamespace(add=lambda *_: None)
        module.train_step(model, optimizer, torch.randn(4, 8), torch.arange(4), meter)
    wrong = "02/plain: SCALER.step() divides gradients by the scale, so SCALER.scale() must "
    wrong += "multiply the loss before backward()"
    assert torch.equal(*grads), wrong


@pytest.mark.parametrize("updates", [5, 84])
def test_schedule_steps_once_per_update_and_ends_at_zero(monkeypatch, updates):
    rates = []
    step = torch.optim.lr_scheduler.CosineAnnealingLR.step

    def watched(scheduler, *args):
        step(scheduler, *args)
        rates.append(scheduler.get_last_lr()[0])

    def update(fabric, model, optimizer, images, labels, meter):
        optimizer.step()  # without gradients: only the schedule matters here
        meter.add(torch.zeros(()), torch.zeros(len(labels), 10), labels)

    monkeypatch.setattr(torch.optim.lr_scheduler.CosineAnnealingLR, "step", watched)
    monkeypatch.setattr(Evaluator, "value", lambda *_: 0.5)
    module = scripts.get("06_sgd/train").load()
    module.train_step = update
    record = module.main([*TINY, "--epochs", "2", "--max-steps", str(updates)])
    steps = len(rates) - 1  # it has made one when it is new
    assert record["steps"] == updates == steps, f"06: the schedule has made {steps} steps"
    wrong = f"06: T_max is not the number of updates, {updates}: the rate ends at {rates[-1]}"
    assert rates[0] == 0.05 and rates[-1] == pytest.approx(0, abs=1e-12), wrong
    assert rates == sorted(rates, reverse=True)


def test_empty_init_changes_no_loss():
    assert alone("06_sgd/train")[0] == alone("07_init_module/train")[0]


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
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("name", [SHARDED[0], TENSOR_PARALLEL])
def test_several_devices_are_as_one_in_fp32(sharded, name):
    one, record = alone("07_init_module/train", fp32=True)
    assert record["precision"] == "32-true"
    several = sharded[0][f"{name} in fp32"]
    assert several["losses"] == pytest.approx(one, rel=1e-4)
    assert several["test_accuracy"] == record["test_accuracy"]


def test_offload_leaves_everything_on_the_host(sharded):
    # On a CPU, device memory is host memory, so compare the policies of the four blocks and of the
    # root.
    for rank in sharded:
        assert rank["10_offload/train as is"]["policies"] == [True] * 5
        assert rank["09_act_ckpt/train as is"]["policies"] == [False] * 5
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
