"""Side road from 11_llm/causal.py, mixture of experts: each token takes a few of many MLPs.

In each block of OLMoE-1B-7B, a small layer, the router, chooses 8 of 64 MLPs (experts) for a token.
So a token is computed with 1.3 billion weights, but any of the 6.9 billion may be needed next. All
have gradients and Adam's states: 16 bytes each, 111 GB, and in Adam's step 4 more. That is the
peak; a model of 1.3 billion weights would need 21 GB, and 5 more.

A router that prefers some experts trains these only. The auxiliary loss is smallest if all get as
many tokens; `output_router_logits` asks for it, and the reported loss is without it. Before
https://github.com/huggingface/transformers/pull/48131 it took 81 GB for a text of 128k tokens in
Qwen3-30B-A3B: a mask of all blocks, tokens, choices and experts. Now it takes 0.25 GB.

Routing changes no byte of the peak here: a token has 8 rows, whichever experts they go to. The tiny
model needs the same if all tokens choose the same experts, or all experts are chosen as often. An
emulated GPU, where no kernel chooses, needs the same, too.

With expert parallelism, each device has some of the experts, and tokens travel to them and back.
There routing decides: at worst, one device gets the rows of all tokens. It is no script here, since
it needs the exchange, how many rows come from whom, and gradients that are averaged over all
devices for the other weights only. 11_llm/train.py shards experts as it does any weight, and
gathers all of a block.

Cost: all experts are trained, and kept, for tokens that use an eighth of them

Losses: other from the start
Memory: more

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.text import data, models
from shared.text.roads import mixture

BATCH_SIZE = 12  # texts per update
LR = {"full": 5e-5, "tiny": 2e-3}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
    )


def build(fabric, args, loaders):
    model = models.language_model(args, loaders)
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels, meter):
    output = model(**tokens, output_router_logits=True)  # logits: (batch, tokens, vocabulary)
    loss = F.cross_entropy(output.logits.flatten(0, 1), labels.flatten())
    fabric.backward(loss + model.config.router_aux_loss_coef * output.aux_loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(loss, None, labels)


def main(argv=None):
    args = mixture.parse(__file__, argv, BATCH_SIZE, DEVICES)
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
