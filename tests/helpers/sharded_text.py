"""Run the functions of 11_llm/train.py on four processes, and write the observations of each.

Usage: python tests/helpers/sharded_text.py MODELS DATA.csv OUT.json
MODELS is a folder of model folders; trained models are saved beside them, as NAME-trained. Every
model is loaded in bf16, as the script stands, and in fp32, where results can be compared with one
device.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from conftest import tokens_of
from lightning.fabric import Fabric
from torch.distributed.tensor import DTensor
from transformers import AutoModelForSequenceClassification

from helpers.sharded import hashed
from shared.lab.records import scripts
from shared.lab.records.running import side_by_side
from shared.metrics import Meter
from shared.text import cli, data, models

PROCESSES = 4
STEPS = 4
TYPES = {"bf16-true": torch.bfloat16, "32-true": torch.float32}


def watch(folder, table, precision):
    """Build a model, compare its logits with those of from_pretrained(), train and save it."""
    module = scripts.get("11_llm/train").load()
    module.Fabric = lambda **options: Fabric(**{**options, "precision": precision})
    argv = ["--preset", "tiny", "--model", str(folder), "--data", str(table)]
    argv += ["--save", f"{folder}-trained" + "-bf16" * (precision != "32-true")]
    args = cli.parse(module.__file__, argv, 12, PROCESSES, 3)
    fabric = module.make_fabric(args)
    fabric.launch()
    loaders = data.loaders(args)
    loader = fabric.setup_dataloaders(loaders.train)
    file = models.weights(args, loaders)
    before = hashed(file)
    model, optimizer = module.build(fabric, args, loaders)
    seen = {"all sharded": all(isinstance(p, DTensor) for p in model.parameters()), "losses": []}
    seen["dtypes"] = sorted({str(p.dtype) for p in model.parameters()})
    tokens = tokens_of(loaders.config.pad_token_id)
    plain = AutoModelForSequenceClassification.from_pretrained(folder, dtype=TYPES[precision])
    with torch.no_grad():
        logits, wanted = (m.eval()(**tokens).logits for m in (model, plain))
    seen["same logits"] = torch.equal(logits, wanted.float())
    model.train()
    meter = Meter(args, fabric)
    meter.loaders = loaders
    with meter.training(model, optimizer):
        for (tokens, labels), _ in zip(loader, range(STEPS)):
            module.train_step(fabric, model, optimizer, tokens, labels, meter)
            mean = meter.losses.last.clone()
            meter.losses.end()
            dist.all_reduce(mean)
            seen["losses"].append(mean.item() / dist.get_world_size())
    seen["same file"] = before == hashed(file)
    return seen


def work(folders, table, out):
    """Train all models as one of the processes; the first one writes the results."""
    dist.init_process_group("gloo")
    asked = [(folder, precision) for folder in folders for precision in TYPES]
    results = {f"{f.name} {precision}": watch(f, table, precision) for f, precision in asked}
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, results)
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(everyone))
    dist.destroy_process_group()


if __name__ == "__main__":
    folders = sorted(Path(sys.argv[1]).iterdir())
    side_by_side(PROCESSES, work, folders, *sys.argv[2:])
