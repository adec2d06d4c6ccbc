"""Side road from 11_llm/causal.py, images as tokens: one image takes the place of many words.

A vision-language model cuts an image into patches. A vision transformer, the encoder, computes
them; Qwen2-VL merges four of its results into one, which stands among the text's tokens like a
word. With patches of 14 × 14 pixels, an image has pixels / (14 × 2)² tokens: 484 with 616 × 616
pixels, and four times as many with twice the edge. A caption has a few.

So the length of the text does not tell how much memory an image takes:
https://github.com/huggingface/trl/issues/3481. Each of its tokens has activations in all blocks of
the language model, and logits of the whole vocabulary. Those of the encoder come on top, of four
patches per token. The loss is on captions only, and saves nothing of this.

The number of images in the data does not matter, only those of a batch and their pixels. The dial
is called max_pixels in https://github.com/QwenLM/Qwen3-VL/issues/185, and larger images are shrunk.
Here it follows from --max-length: an image is the largest square that leaves a caption 16 tokens.

The model is Qwen2-VL-2B. All of its 2.2 billion weights are trained, those of the encoder, too.
Perplexity is that of captions, "a picture of 7": with five tokens, one of ten classes to guess.

Cost: an encoder, and its activations: four patches for each token of an image

Losses: of another task
Memory: more, more on the host

On a GPU, a model from the hub on CIFAR-10; with --preset tiny, a small one on digits.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.text import data, models
from shared.text.roads import captions

BATCH_SIZE = 4  # images with captions per update
LR = {"full": 5e-5, "tiny": 1e-3}  # the tiny preset makes few updates, so a larger rate
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
    logits = model(**tokens).logits  # (batch, tokens, vocabulary)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(loss, None, labels)


def main(argv=None):
    args = captions.parse(__file__, argv, BATCH_SIZE, DEVICES)
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
