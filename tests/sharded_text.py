"""Runs 11_llm/train.py's functions on the processes that torchrun has started, and the tests look at what they did.

Usage: python -m torch.distributed.run --nproc-per-node 4 tests/sharded_text.py MODELS DATA.csv OUT.json
MODELS is a folder of folders with models; what is trained is saved beside each, as NAME-trained. Every model is loaded in
bf16, as the script stands, and in fp32, where results can be compared with one device.
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

from shared import cli, stages, text

STEPS = 4


def watch(folder, data, precision):
    """Builds a model, compares its logits with from_pretrained()'s, trains it for a few updates and saves it."""
    module = stages.load("11_llm/train")
    module.Fabric = lambda **options: Fabric(**{**options, "precision": precision})
    argv = ["--preset", "tiny", "--model", str(folder), "--data", str(data), "--save", f"{folder}-trained"]
    args = cli.parse(module.__file__, argv, task=text, batch_size=12, micro_batch_size=3, devices=4)
    fabric = module.make_fabric(args)
    fabric.launch()
    loader = fabric.setup_dataloaders(text.loaders(args)[0], use_distributed_sampler=False)
    model, optimizer = module.build(fabric, args)
    seen = {"all sharded": all(isinstance(p, DTensor) for p in model.parameters()), "losses": []}
    seen["dtypes"] = sorted({str(p.dtype) for p in model.parameters()})
    tokens = tokens_of(args.config.pad_token_id)
    plain = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32 if precision == "32-true" else torch.bfloat16).eval()
    with torch.no_grad():
        seen["same logits"] = torch.equal(model.eval()(**tokens).logits, plain(**tokens).logits.float())
    model.train()
    for (tokens, labels), _ in zip(loader, range(STEPS)):
        mean = module.train_step(fabric, model, optimizer, tokens, labels)[0].clone()
        dist.all_reduce(mean)
        seen["losses"].append(mean.item() / dist.get_world_size())
    text.save(fabric, model, args)
    return seen


if __name__ == "__main__":
    folders = sorted(f for f in Path(sys.argv[1]).iterdir())
    dist.init_process_group("gloo")
    dist.barrier()
    results = {f"{folder.name} {precision}": watch(folder, sys.argv[2], precision) for folder in folders for precision in ("bf16-true", "32-true")}
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, results)
    if dist.get_rank() == 0:
        Path(sys.argv[3]).write_text(json.dumps(everyone))
    dist.destroy_process_group()
