"""Promise: every stage follows its rules: rates, batches, gradients, weights, schedule and seed.

A test fails with the name of the script and of the rule that it breaks.
"""

import contextlib
import functools
import math
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from conftest import NAMES, PLAIN, SINGLE, in_fp32
from helpers.single_process import TINY, Results, Spy

from shared.lab.records import scripts
from shared.metrics import Evaluator

ADAM = {"full": 5e-5, "tiny": 6e-4}
SGD = {"full": 0.01, "tiny": 0.05}
SEED = 7
MOST = 84  # updates: all of two epochs in 01 to 03, later the first and a few of the second
SIZES = {"train": 1300, "val": 137, "test": 360}  # images of the tiny preset


class Stage(NamedTuple):
    """The rules of a stage, by hand."""

    batch: int  # images per update
    micro_batch: int | None
    rates: dict
    weights: torch.dtype
    computes: torch.dtype  # on a CPU
    loading: float  # bytes for each weight, at the peak


STAGES = {
    "01": Stage(64, None, ADAM, torch.float32, torch.float32, 8),
    "02": Stage(64, None, ADAM, torch.float32, torch.bfloat16, 8),
    "03": Stage(64, None, ADAM, torch.bfloat16, torch.bfloat16, 8),
    "04": Stage(16, None, ADAM, torch.bfloat16, torch.bfloat16, 8),
    "05": Stage(16, 4, ADAM, torch.bfloat16, torch.bfloat16, 8),
    "06": Stage(16, 4, SGD, torch.bfloat16, torch.bfloat16, 8),
    "07": Stage(16, 4, SGD, torch.bfloat16, torch.bfloat16, 2),
    "08": Stage(16, 4, SGD, torch.bfloat16, torch.bfloat16, 2),
    "09": Stage(16, 4, SGD, torch.bfloat16, torch.bfloat16, 2),
    "10": Stage(16, 4, SGD, torch.bfloat16, torch.bfloat16, 2),
}
ALONE = [*SINGLE, *scripts.plain(SINGLE)]
TEXTS = {"11_llm/before": (12, None, 1), "11_llm/train": (12, 3, 4)}


def stage(name):
    return STAGES[name[:2]]


@pytest.mark.parametrize("name", [*NAMES, *PLAIN, *TEXTS])
def test_batches_rates_and_processes(name):
    module = scripts.get(name).load()
    found = (module.BATCH_SIZE, getattr(module, "MICRO_BATCH_SIZE", None), module.DEVICES)
    if name in TEXTS:
        wanted, rates = TEXTS[name], {"full": 5e-5, "tiny": 3e-4}
    else:
        wanted = (stage(name).batch, stage(name).micro_batch, 4 if name >= "08" else 1)
        rates = stage(name).rates
    what = "BATCH_SIZE, MICRO_BATCH_SIZE and DEVICES"
    assert found == wanted, f"{name}: {what} are {found}, and should be {wanted}"
    assert module.LR == rates, f"{name}: LR is {module.LR}, and should be {rates}"


class Net(torch.nn.Module):
    """A classifier of small images that notes, for each forward pass, images, types, gradients."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(12, 10)
        self.passes = []

    def forward(self, images):
        logits = self.layer(images.flatten(1))
        has_gradients = any(p.grad is not None for p in self.parameters())
        self.passes.append((len(images), logits.dtype, has_gradients))
        return logits


class Kept(Results):
    """Results that also keep the losses with their graphs."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def add(self, loss, logits, labels):
        super().add(loss, logits, labels)
        self.losses.append(loss)


def two_updates(name, module, images, labels, dtype=torch.float32):
    """Run two updates of a small model: (model, its parameters' gradients in each step, Kept)."""
    model, grads, kept = Net(), [], [Kept(), Kept()]
    if name in PLAIN:
        model, first = model.to(dtype), ()
        updated, optimizer = model, Spy(model.parameters(), lr=0.1)
    else:
        fabric = module.make_fabric(SimpleNamespace(accelerator="cpu", devices=1))
        updated, optimizer = fabric.setup(model, Spy(model.parameters(), lr=0.1))
        first = (fabric,)
    spied = getattr(optimizer, "optimizer", optimizer)
    step = spied.step
    spied.step = lambda *a, **k: (step(*a, **k), grads.append(spied.grads))[0]
    for results in kept:
        module.train_step(*first, updated, optimizer, images, labels, results)
    return model, grads, kept


def examples(n):
    torch.manual_seed(n)
    return torch.randn(n, 3, 2, 2), torch.randint(10, (n,))


@pytest.mark.parametrize("batch", [16, 13, 3])
@pytest.mark.parametrize("name", ALONE)
def test_an_update_has_the_gradients_of_the_whole_batch(name, batch):
    """In fp32, from batches of any size, as the last of an epoch may be small."""
    images, labels = examples(batch)
    module = in_fp32(name)
    if name == "02_mixed_precision/plain":  # as on a GPU, with a scaler
        module.SCALER = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        module.SCALER.scale(torch.zeros(()))  # now it has a scale, which step() divides by
        module.torch = SimpleNamespace(autocast=lambda _: contextlib.nullcontext())
    model, grads, kept = two_updates(name, module, images, labels)
    loss = F.cross_entropy(model.layer(images.flatten(1)), labels)
    wanted = torch.autograd.grad(loss, [*model.parameters()])
    assert len(grads) == 2, f"{name}: an update has {len(grads) / 2:g} steps of the optimizer"
    whole = f"{name}: gradients are not those of the mean loss of the whole batch, of {batch}"
    whole += "; each part counts by its share of the images in this batch"
    torch.testing.assert_close(grads[0], [*wanted], msg=whole)
    freed = f"{name}: the gradients of an update are still there after it (zero_grad)"
    assert not any(has for *_, has in model.passes[:: len(model.passes) // 2]), freed
    sizes = [n for n, *_ in model.passes[: len(model.passes) // 2]]
    most = stage(name).micro_batch or batch
    parts = [min(most, batch - i) for i in range(0, batch, most)]
    assert sizes == parts, f"{name}: forward passes take {sizes} images, and should {parts}"
    shown = f"{name}: meter.add() is not given parts of the batch's mean loss, {loss:.4f}"
    torch.testing.assert_close(kept[0].loss, loss.detach(), msg=shown)
    for part in kept[0].losses:
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(part, [*model.parameters()])
            pytest.fail(f"{name}: backward() keeps the graph, and with it the activations")


@pytest.mark.parametrize("name", ALONE)
def test_types_of_weights_computation_and_loss(name):
    wanted, module = stage(name), scripts.get(name).load()
    model, grads, (kept, _) = two_updates(name, module, *examples(16), wanted.weights)
    found = {p.dtype for p in model.parameters()} | {g.dtype for g in grads[0]}
    assert found == {wanted.weights}, f"{name}: weights and gradients are in {found}"
    computed = {dtype for _, dtype, _ in model.passes}
    assert computed == {wanted.computes}, f"{name}: the forward pass computes in {computed}"
    assert kept.loss.dtype == torch.float32, (
        f"{name}: the loss is in {kept.loss.dtype}, not in fp32"
    )


class Observed:
    """A run of a script's main() with updates that only note what they get."""

    def __init__(self, name):
        self.order, self.rates, self.evaluated, self.training = [], [], [], []
        self.module = scripts.get(name).load()
        self._build = self.module.build
        self.module.build, self.module.train_step = self.build, self.update
        torch.manual_seed(0)  # not the seed of a script that was run before
        with mock.patch.object(Evaluator, "value", self.value):
            options = ["--epochs", "2", "--max-steps", str(MOST), "--seed", str(SEED)]
            self.record = self.module.main([*TINY, *options])
        self.weights = self.model.state_dict()  # as loaded, since the updates have no gradients
        self.file = torch.load(self.path, weights_only=True)

    def build(self, device, args, loaders):
        self.seed = torch.initial_seed()
        self.path = self.module.models.weights(args, loaders)
        built = self._build(device, args, loaders)
        self.model, optimizer = built[:2]
        self.optimizer = getattr(optimizer, "optimizer", optimizer)
        return built

    def update(self, *arguments):
        model, optimizer, images, labels, meter = arguments[-5:]
        self.training.append(model.training)
        self.order.append(images.sum().item())
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        optimizer.step()  # without gradients: nothing changes
        meter.add(torch.zeros(()), torch.zeros(len(labels), 10), labels)

    def value(self, model, loader):
        self.evaluated.append(len(loader.dataset))
        return 0.5


observed = functools.cache(Observed)


@pytest.mark.parametrize("name", ALONE)
def test_weights_are_those_of_the_file(name):
    run, dtype = observed(name), stage(name).weights
    found = {value.dtype for value in run.weights.values()}
    assert found == {dtype}, f"{name}: build() returns weights in {found}, not in {dtype}"
    for key, value in run.file.items():
        same = torch.equal(run.weights[key], value.to(dtype))
        assert same, f"{name}: {key} is not what the file of weights has"


@pytest.mark.parametrize("name", ALONE)
def test_the_optimizer_has_its_rate_and_no_other_settings(name):
    found, rates = observed(name).optimizer, stage(name).rates
    kind = torch.optim.Adam if rates is ADAM else torch.optim.SGD
    assert type(found).__name__ == kind.__name__, f"{name}: the optimizer is {type(found)}"
    usual = kind([torch.zeros(1)], lr=rates["tiny"]).defaults
    other = {key: found.defaults[key] for key in usual if found.defaults[key] != usual[key]}
    assert not other, f"{name}: the optimizer has other settings: {other}"


@pytest.mark.parametrize("name", ALONE)
def test_the_rate_of_each_update(name):
    """Constant, or half a cosine from the full rate to zero after the last update."""
    rate, found = stage(name).rates["tiny"], observed(name).rates
    epoch = math.ceil(SIZES["train"] / stage(name).batch)
    n = min(2 * epoch, MOST)
    assert len(found) == n, f"{name}: two epochs have {len(found)} updates, and should have {n}"
    wanted = [rate] * n
    if stage(name).rates is SGD:
        wanted = [rate * (1 + math.cos(math.pi * k / n)) / 2 for k in range(n)]
    for k, values in enumerate(zip(found, wanted)):
        wrong = f"{name}: the rate of update {k + 1} of {n} is {values[0]}, not {values[1]}"
        assert values[0] == pytest.approx(values[1], abs=1e-12), wrong


@pytest.mark.parametrize("name", ALONE)
def test_seed_order_and_images_of_each_part(name):
    run = observed(name)
    assert run.seed == SEED, f"{name}: build() runs with seed {run.seed}, not --seed {SEED}"
    assert all(run.training), f"{name}: an update is not in training mode"
    like = "01_baseline/train" if stage(name).batch == 64 else "04_batchsize/train"
    assert run.order == observed(like).order, f"{name}: batches are not those of {like}"
    epoch = math.ceil(SIZES["train"] / stage(name).batch)
    first, second = run.order[:epoch], run.order[epoch:]
    assert first[: len(second)] != second, f"{name}: both epochs have the same order"
    assert run.evaluated[-1] == SIZES["test"], f"{name}: it is not the test images that test it"
    assert set(run.evaluated[:-1]) == {SIZES["val"]}, f"{name}: it validates with other images"


@pytest.mark.parametrize("name", ALONE)
def test_the_peak_of_loading(name):
    run = observed(name)
    n = sum(value.numel() for value in run.file.values())
    found, wanted = run.record["load"]["device_peak_gb"] * 1e9 / n, stage(name).loading
    wrong = f"{name}: loading takes {found:.2f} bytes for a weight, and should take {wanted}"
    assert found == pytest.approx(wanted, rel=0.03), wrong
