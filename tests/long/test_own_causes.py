"""Promise: memory that evaluation, FSDP or NCCL holds beside the usual is found, with its line."""

import re

import pytest
from helpers.emulated import NEEDS
from helpers.own import answer, predicted

from emulated_gpu.cards import NCCL_GB

pytestmark = NEEDS

# A batch's results are 4.19 MB; there are 500 batches.
KEEPS = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 4096).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(256, 8).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
kept = []
loader = DataLoader(TensorDataset(torch.ones(500 * 256, 8)), batch_size=256)
with torch.no_grad():
    for x, in {}:
        result = model(x.cuda())
        {}
"""
# Two passes leave four gradients whole. The third one reduces each when it is there: at the peak,
# of the last layer there is a shard, and the next gradient has arrived a second time.
UNREDUCED = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_node_local_rank())
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, bias=False) for _ in range(4))).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    for n in range(3):
        model.set_requires_gradient_sync(n == 2)
        model(torch.ones(8, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# Each layer has a mesh of its own, in two dimensions: 10 groups beside the first one.
GROUPS = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_node_local_rank())
message = torch.ones(1).cuda()
dist.all_reduce(message)
for _ in range(9):
    dist.all_reduce(message, group=dist.new_group([0, 1, 2, 3]))
"""

# A batch of evaluation is 64 times as large as that of training, and comes after 500 updates.
LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader
class Mine(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 4096)
    def training_step(self, x, _):
        return self.layer(x).mean()
    def validation_step(self, x, _):
        self.log("loss", self.layer(x).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.ones(1 << 16, 64)
trainer = lightning.Trainer(num_sanity_val_steps=0, max_epochs=2, val_check_interval=500,
                            accumulate_grad_batches=2, enable_checkpointing=False, logger=False)
trainer.fit(Mine(), DataLoader(data, batch_size=64), DataLoader(data, batch_size=4096))
"""
TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments
class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 4096)
    def forward(self, x, labels):
        return {"loss": self.layer(x).mean(), "first": labels}
data = [{"x": torch.ones(64), "labels": torch.ones(1)}] * 20_000
arguments = TrainingArguments("out", per_device_train_batch_size=64, report_to=[], max_steps=1000,
    per_device_eval_batch_size=4096, eval_strategy="steps", eval_steps=500, save_strategy="no")
Trainer(Mine(), arguments, train_dataset=data, eval_dataset=data).train()
"""
# Two batches of 8 per update, of a class that PyTorch does not know.
ENCODING = """
import torch
from transformers import BatchEncoding
from torch.utils.data import DataLoader
def collate(rows):
    return BatchEncoding({"labels": torch.ones(len(rows)), "input_ids": torch.stack(rows)})
loader = DataLoader(torch.ones(800, 32, dtype=torch.long), batch_size=8, collate_fn=collate)
model = torch.nn.Embedding(100, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n, batch in enumerate(loader):
    model(batch["input_ids"].cuda()).sum().backward()
    if n % 2:
        optimizer.step()
        optimizer.zero_grad()
"""
# The same without a loader.
NO_LOADER = """
import torch
model = torch.nn.Embedding(100, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(100):
    model(torch.ones(8, 32, dtype=torch.long).cuda()).sum().backward()
    if n % 2:
        optimizer.step()
        optimizer.zero_grad()
"""
# Two networks with steps of their own, and an evaluation whose graph nobody needs.
TWO_STEPS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
models = [torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.Sigmoid(),
                              torch.nn.Linear(4096, 64)).cuda() for _ in range(2)]
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
data = TensorDataset(torch.ones(100_000, 64))
for epoch in range(2):
    for x, in DataLoader(data, batch_size=64):
        for model, optimizer in zip(models, optimizers):
            model(x.cuda()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for x, in DataLoader(data, batch_size=8192):
        models[0](x.cuda())
"""
# Before it trains, 1.07 GB are in use for a moment.
LOADS_MORE = """
import torch
large = torch.ones(1 << 28, device="cuda")
del large
model = torch.nn.Linear(64, 64).cuda()
for _ in range(4):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    with torch.no_grad():
        model.weight -= model.weight.grad
"""


@pytest.mark.parametrize(
    ("loader", "keeps", "gb"),
    [
        ("loader", "kept.append(result)", 2.10),
        ("Accelerator().prepare(loader)", "kept.append(result)", 2.10),
        # For a moment, all results are in memory twice.
        ("loader", "kept = torch.cat((kept, result)) if len(kept) else result", 4.19),
        ("loader", "kept.append(result.cpu())", None),
    ],
)
def test_evaluation_that_keeps_its_results_is_counted_to_its_end(loader, keeps, gb, tmp_path):
    script = KEEPS.format(loader, keeps)
    said = predicted(script, tmp_path, "--card", 3)
    assert ("Evaluation keeps" in said) == bool(gb)
    if not gb:
        return
    line = script[: script.index("= model(x")].count("\n") + 1 + ("cat" in keeps)
    assert f"Evaluation keeps 4.2 MB of each batch on the GPU, made in mine.py:{line}: " in said
    at_end = float(re.search(r": ([\d.]+) GB are in use at the end of its 500 batches", said)[1])
    assert at_end == pytest.approx(gb, rel=0.03)  # and workspaces
    fits = "it does not fit" if gb > 3 else "GB are left"
    assert fits in said.partition("Evaluation keeps")[0]  # first of all
    assert "Nothing has to be saved" not in said


def test_gradients_that_fsdp_does_not_reduce_yet_are_gradients(tmp_path):
    _, record = answer(UNREDUCED, tmp_path, "--devices", 8)
    held = record["train"]["breakdown_gb"]
    whole = 4096**2 * 4 / 1e9
    assert held["gradients"] == pytest.approx((3 + 1 / 8) * whole)
    assert held["temporaries"] == pytest.approx(whole, rel=0.01)


def test_groups_of_processes_that_take_more_than_is_counted_come_first(tmp_path):
    said = predicted(GROUPS, tmp_path, "--devices", 4).strip().splitlines()
    assert said[1].startswith("10 groups of processes communicate by NCCL, most of them made in ")
    assert "made in mine.py:9. " in said[1] and f"{9 * NCCL_GB:.1f} GB more" in said[1]


@pytest.mark.parametrize("script", [LIGHTNING, TRANSFORMERS])
def test_a_trainer_evaluates_after_the_watched_updates(script, tmp_path):
    said = predicted(script, tmp_path)
    assert "The peak: evaluation" in said
    assert "The peak is in evaluation: take fewer inputs" in said


@pytest.mark.parametrize("script", [ENCODING, NO_LOADER])
def test_all_batches_of_an_update_are_counted(script, tmp_path):
    assert "inputs of 8 x 32, 16 texts per update" in predicted(script, tmp_path)


def test_a_peak_before_training_is_told(tmp_path):
    said = predicted(LOADS_MORE, tmp_path)
    assert "Before training it needs more: 1.07 GB, where the peak is in line mine.py:3\n" in said
    assert "Nothing has to be saved" not in said


def test_evaluation_with_a_graph_is_no_training(tmp_path):
    said = predicted(TWO_STEPS, tmp_path)
    assert "inputs of 64 x 64, fp32, 64 inputs per update" in said
    assert "The peak: evaluation" in said and "with torch.no_grad(): around it" in said
