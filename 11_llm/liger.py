"""Side road from 11_llm/causal.py, Liger: the loss of a few tokens at a time, by a fused kernel.

Liger-Kernel computes the logits of so many tokens that they are about as large as all last hidden
states: with Qwen3-0.6B, 64 of 6,144. A kernel in Triton writes the gradient of their loss in their
place; from it come the gradients of hidden states and head, before the next tokens' turn. All of
that is in the forward pass. The backward pass finds these gradients, and needs no logits.

With 12 texts of 512 tokens that is as good as causal_chunked.py: 30 GB of 43 are left. The chunks
of that script are whole texts, Liger's are not. Of one text of 32,768 tokens, 180 GB of 200 are
left there, and 122 here. Little is saved if the vocabulary is small beside the blocks: with
Mistral-7B, 32,000 tokens and 12 texts, 2 GB of 163 (compare issue 941 of Liger-Kernel). Nothing is
saved if the peak is elsewhere, such as in Adam's step.

Its kernels are for GPUs, so a CPU computes the loss of causal.py. For models that change the logits
after the last layer, such as Gemma 2, `causal.head` ends in one line that says so.

Cost: a sum as large as the head for each few tokens, and its gradient from the forward pass on

Losses: nearly the same
Memory: less

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
from pathlib import Path

import torch
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.text import data, models
from shared.text.roads import causal

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
    hidden = model.base_model(**tokens).last_hidden_state.flatten(0, 1)  # (tokens, width)
    head = causal.head(model)
    loss = causal.liger_fused_linear_cross_entropy(hidden, head.weight, labels.flatten(), head.bias)
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(loss, None, labels)


def main(argv=None):
    args = causal.parse(__file__, argv, BATCH_SIZE, DEVICES)
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
