"""Side road from 11_llm/causal.py, GRPO: the model writes, and learns from what a rule rewards.

Group relative policy optimization (https://arxiv.org/abs/2402.03300): the model, here called the
policy, completes each prompt several times. A rule rewards each completion; its advantage is how
many standard deviations it lies above its group. Tokens of better completions become likelier, at
some distance from a reference, the model as it was. No second network has to judge.

Here a reward is the share of frequent tokens in a completion. It stands where other scripts have a
metric; the loss shown is minus the mean reward. The loss that is derived says nothing: advantages
add up to zero. An update follows each writing, so the ratio of new to old probabilities is 1, and
clipping it, as for several updates, would change nothing.

Why does a model of 0.6 billion weights fill 49 GB (https://github.com/huggingface/trl/issues/3456)?
Weights, gradients, Adam's states and the reference take 20 bytes a weight, 12 GB. The rest grows
with group × tokens: activations, unless checkpointed, and the logits of all completions, of policy
and reference (https://github.com/huggingface/trl/issues/3678). Of one token they take 0.6 MB in
fp32, and the backward pass has three tensors as large. Logits of prompts are not computed.

Texts have 64 tokens here, half of them written; --max-length sets more.

Cost: completions are written token by token; a copy of the weights, and a pass of it

Losses: of another task
Memory: less

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import copy
import sys
from pathlib import Path

import torch
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.text import data, models
from shared.text.roads import rewards

BATCH_SIZE = 8  # texts per update, whose first halves are the prompts
GROUP = 8  # completions of each prompt, which are compared with each other
BETA = 0.04  # weight of the distance from the reference
LR = {"full": 1e-6, "tiny": 2e-3}  # the tiny preset makes few updates, so a larger rate
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
    optimizer.reference = copy.deepcopy(model.module).eval().requires_grad_(False)
    return model, optimizer


def log_probs(model, texts, n):  # of the last n tokens
    logits = model(input_ids=texts[:, :-1], logits_to_keep=n).logits  # (texts, n, vocabulary)
    return logits.log_softmax(-1).gather(-1, texts[:, -n:, None]).squeeze(-1)  # (texts, n)


def train_step(fabric, model, optimizer, tokens, labels, meter):
    model.eval()  # no dropout, which would change the probabilities from one pass to the next
    prompts, n = rewards.prompts(tokens)  # (batch, tokens); n more are to be written
    texts = rewards.completed(model, prompts.repeat_interleave(GROUP, 0), n)  # (batch × group, all)
    reward = rewards.reward(texts[:, -n:]).view(-1, GROUP)  # (batch, group)
    better = reward - reward.mean(1, keepdim=True)  # than others of the group
    advantage = better / (better.std(1, keepdim=True) + 1e-4)
    policy = log_probs(model, texts, n)  # (batch × group, n)
    with torch.no_grad():
        reference = log_probs(optimizer.reference, texts, n)
    ratio = (policy - policy.detach()).exp()  # 1, with the gradient of policy
    distance = (reference - policy).exp() - (reference - policy) - 1  # estimates the KL divergence
    loss = (BETA * distance - advantage.view(-1, 1) * ratio).mean()
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(-reward.mean(), reward, labels)  # what the loss is derived from


def main(argv=None):
    args = rewards.parse(__file__, argv, BATCH_SIZE, DEVICES)
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
