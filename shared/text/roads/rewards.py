"""Reinforcement learning on texts: a model completes the first half of a text, and is rewarded.

The second half of each text is left out; the model writes as many tokens in its place.
"""

import functools

import torch
import torchmetrics

from shared.run import cli
from shared.run.errors import UserError
from shared.text import models
from shared.text.roads.causal import Causal

LENGTH = 64  # tokens, half of them written one by one, which takes time
FEW = 480  # texts of LENGTH tokens, for the tiny preset to learn from
FREQUENT = 1000  # smaller tokens are frequent: byte pair encoding numbers frequent pieces first


class Reward(torchmetrics.MeanMetric):
    """The mean reward of completions."""

    def update(self, loss, rewards, labels):
        super().update(rewards)


class Rewarded(Causal):
    """The task of reinforcement learning: a model completes texts, and is rewarded."""

    learned, new_metric = "reward", Reward

    def choose(self, args):
        args.max_length = args.max_length or LENGTH
        if args.max_length < 2:
            raise UserError("--max-length 1: a prompt and its completion are at least 2 tokens")
        if args.model == models.TINY_GPT:
            args.limit = args.limit or FEW
        super().choose(args)

    def outputs(self, model, tokens, labels):
        """Return None, and the reward of one completion of each prompt, (batch,)."""
        beginnings, n = prompts(tokens)
        return None, reward(completed(model, beginnings, n)[:, -n:])


def prompts(tokens):
    """Return the first half of each text, (batch, tokens), and the number of tokens left out."""
    ids = tokens["input_ids"]
    n = ids.shape[1] // 2
    return ids[:, :-n], n


@torch.no_grad()
def completed(model, ids, n):
    """Return texts, (batch, tokens), with n more tokens, drawn one after the other."""
    model = getattr(model, "module", model)  # without Fabric's wrapper
    model.generation_config.eos_token_id = None  # no token ends a completion early
    # From all tokens, not the 50 likeliest: the loss presumes the model's own probabilities.
    return model.generate(ids, max_new_tokens=n, use_cache=True, do_sample=True, top_k=0)


def reward(completions):
    """Return the share of frequent tokens in each completion, (batch,)."""
    return (completions < FREQUENT).float().mean(1)


TASK = Rewarded()
parse = functools.partial(cli.parse, TASK)
