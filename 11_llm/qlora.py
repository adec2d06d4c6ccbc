"""Side road from 11_llm/lora.py, QLoRA: weights that do not learn are kept in 4 bits.

QLoRA also keeps the frozen weights in NF4, a 4-bit type with 16 values that suit normally
distributed weights. For every matrix product they are converted back, one layer at a time.
Embeddings are no linear layers and stay as they are.

`quantize_` comes after `setup_module`: with `precision="bf16-true"`, Fabric converts all weights to
bf16 there, which would silently undo it. torchao's configuration for NF4 is in its `prototype`
folder, so it may move. A checkpoint for --resume cannot hold such weights; `--save` writes the
model at the end of the run, in fp32.

Cost: weights rounded to one of 16 values; converted back in each pass

Losses: other; they fall if the weights are pretrained
Memory: less

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from peft import LoraConfig, inject_adapter_in_model
from torchao.prototype._nf4tensor_api import NF4WeightOnlyConfig
from torchao.quantization import quantize_

from shared.metrics import Meter
from shared.text import cli, data, models

BATCH_SIZE = 12  # texts per update
LR = {"full": 5e-5, "tiny": 3e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
    )


def build(fabric, args, loaders):
    model = models.classifier(args, loaders)
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    model = fabric.setup_module(model)
    quantize_(model.base_model, NF4WeightOnlyConfig())  # now, as Fabric would convert them back
    inject_adapter_in_model(LoraConfig(target_modules="all-linear"), model.base_model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    optimizer = fabric.setup_optimizers(optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels, meter):
    logits = model(**tokens).logits  # (batch, classes)
    loss = F.cross_entropy(logits, labels)
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(loss, logits, labels)


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*loaders.parts)
    with meter.loading(loaders):
        model, optimizer = build(fabric, args, loaders)
    with meter.training(model, optimizer):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for tokens, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, tokens, labels, meter)
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
