"""Side road from 11_llm/causal.py, Context parallel: a part of every text on each device.

Every device has all weights, and a quarter of the tokens of each text, which it takes through all
layers. Only in attention does a token see others. There the devices exchange: each gives away three
quarters of the heads and gets the other tokens of its own quarter; afterwards, all goes back. So
every device has a quarter of the activations and of the logits, whatever the length of the texts.

This is Ulysses (https://arxiv.org/abs/2309.14509); the devices have to divide the heads, those of
keys, too. Ring attention (https://arxiv.org/abs/2310.01889) passes keys and values on in a circle
instead, on as many devices as one likes; PyTorch's `context_parallel` does that, on GPUs only.

Positions count from the start of a text, not of a part. DDP averages the gradients. In validation
each device has whole texts.

Cost: computation waits for eight exchanges per block; all weights on every device

Losses: nearly the same
Memory: less

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import functools
import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from transformers import AttentionInterface

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.run.errors import UserError
from shared.text import data, models
from shared.text.roads import causal

# On a CPU, DTensor gathers everything in place of an exchange: silence its warning of that.
logging.getLogger("torch.distributed.tensor._collective_utils").setLevel(logging.ERROR)

BATCH_SIZE = 12  # texts per update
LR = {"full": 5e-5, "tiny": 2e-3}  # the tiny preset makes few updates, so a larger rate
DEVICES = 4  # GPUs, or processes on a CPU


def part(tokens, labels):  # of this device: (texts, tokens) become (texts, own tokens)
    ids, n = tokens["input_ids"], dist.get_world_size()
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)  # in the whole text
    ids, positions, labels = (t.chunk(n, 1)[dist.get_rank()] for t in (ids, positions, labels))
    return {"input_ids": ids, "position_ids": positions}, labels


@functools.cache
def all_devices(kind):
    return init_device_mesh(kind, (dist.get_world_size(),))


def exchange(tensor):  # dimension 1 is divided over the devices instead of dimension 2
    divided = DTensor.from_local(tensor, all_devices(tensor.device.type), [Shard(2)])
    return divided.redistribute(placements=[Shard(1)]).to_local()


def attention(module, query, key, value, mask, **options):
    if module.training:  # else each device has all tokens
        # (texts, heads, own tokens, size) become (texts, own heads, tokens, size)
        query, key, value = map(exchange, (query, key, value))
    output, weights = AttentionInterface()["sdpa"](module, query, key, value, mask, **options)
    # (texts, tokens, own heads, size) becomes (texts, own tokens, heads, size)
    return exchange(output) if module.training else output, weights


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
        strategy=DDPStrategy(gradient_as_bucket_view=True),  # gradients live in DDP's buffers
    )


def build(fabric, args, loaders):
    model = models.language_model(args, loaders)
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    AttentionInterface.register("exchanged", attention)
    model.set_attn_implementation("exchanged")
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels, meter):
    tokens, labels = part(tokens, labels)
    logits = model(**tokens).logits  # (batch, tokens, vocabulary)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(loss, None, labels)


def main(argv=None):
    args = causal.parse(__file__, argv, BATCH_SIZE, DEVICES, shares=1)
    config, n = args.config.get_text_config(), args.world_size
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if args.max_length % n or heads % n:  # before processes start
        must = f"they have to divide --max-length {args.max_length} and the model's {heads} heads"
        raise UserError(f"--devices {n}: {must}")
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
