"""What is particular to going on with texts, beyond what shared/text/task.py says of texts."""

import os
from pathlib import Path

import torch
import torch.nn.functional as F
import torchmetrics
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from shared.causal import data
from shared.common.errors import UserError
from shared.text import configs, models
from shared.text.task import Texts

TINY_LENGTH = 128  # tokens; the made-up reviews are few


class Perplexity(torchmetrics.MeanMetric):
    """e to the mean loss per token: among how many tokens the model wavers, so to speak.

    Source: Jelinek et al. 1977, https://doi.org/10.1121/1.2016299.
    """

    def compute(self):
        """Returns the perplexity, a scalar, 1 or more."""
        return super().compute().exp()


class Causal(Texts):
    auto = AutoModelForCausalLM
    does, such_as = "go on with a text", "openai-community/gpt2"
    tiny = configs.TINY_GPT
    presets = {
        "tiny": {"model": configs.TINY_GPT, "data": "reviews"},
        "full": {"model": "Qwen/Qwen3-0.6B", "data": "imdb"},
    }
    classes = None
    learned, counts = "perplexity", (torch.float32,) * 2
    without_bf16 = "11_llm/causal.py computes in fp32"
    model_help = (
        f"{configs.TINY_GPT}, or folder or Hugging Face id of a model that can go on with a text, "
        "such as openai-community/gpt2"
    )
    data_help = (
        "reviews (made up, part of this repository), imdb, fake, a text file, a CSV or JSONL file "
        "with the column text, or a folder of text files"
    )

    def suits(self, data):
        folder = os.path.isdir(data) and any(Path(data).glob("*.txt"))
        return super().suits(data) or folder

    def choose(self, args):
        if args.model == self.tiny and not args.max_length:
            args.max_length = TINY_LENGTH
        super().choose(args)
        if args.model == self.tiny:  # its few updates must be larger still
            args.adam_lr_factor = 40
        both_ways = AutoModelForMaskedLM._model_mapping  # XLNet, too, looks at all tokens
        if type(args.config) in both_ways or args.config.model_type == "xlnet":
            raise UserError(
                f"--model {args.model}: {args.config.model_type} models look at the tokens after a"
                f" token too, so they cannot learn to guess them; choose another, such as"
                f" {self.such_as}"
            )

    def prepare(self, args):
        data.packed(args)
        models.checkpoint(args)

    def model(self, args):
        return models.built(args)

    def new_metric(self, args, by_fabric):
        return Perplexity(nan_strategy="disable")  # a loss of NaN is not to be hidden

    def count_update(self, metric, loss, logits, labels):
        metric.update(loss, labels.numel())

    def outputs(self, model, tokens, labels):
        """Returns the loss of each token, (batch, tokens).

        The texts are taken one at a time, because logits of all would need more memory than the
        training may have.
        """
        losses = []
        for ids, following in zip(tokens["input_ids"].split(1), labels):
            logits = model(input_ids=ids).logits[0]  # (tokens, vocabulary)
            losses.append(F.cross_entropy(logits.float(), following, reduction="none"))
        return torch.stack(losses)

    def count_outputs(self, metric, outputs, labels):
        metric.update(outputs)

    def use_of(self, folder):
        return f'python 11_llm/generate.py {folder} "The film"'

    def fake_batch(self, args, n, update, device):
        """Returns packed texts and the tokens that follow, all of args.max_length."""
        length = args.input_shapes[update][1] if args.input_shapes else args.max_length
        ids, labels = (torch.empty(n, length, dtype=torch.long, device=device) for _ in range(2))
        return {"input_ids": ids}, labels


TASK = Causal()
