"""Next-token prediction: texts joined and cut into pieces of equal length, without padding.

Such packing wastes no computation on padding, and all batches need the same memory.
"""

import functools
import re

import torch
import torch.nn.functional as F
import torchmetrics
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as kinds
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedTokenizerFast

from shared import cli
from shared.cli import UserError
from shared.loading import SPLIT_SEED
from shared.text import data, models, reviews
from shared.text.cli import Texts

TINY_LENGTH = 128  # tokens; the made-up reviews are few
REVIEWS = 8_000  # enough for some 75 updates of 12 texts of 128 tokens
FEWEST = 10  # pieces to train, validate and test with
AT_ONCE = 100_000  # characters that a tokenizer gets; more in one piece would take it long
END = "<|endoftext|>"  # as in GPT-2
# What configurations call it when logits are scaled or limited after the head.
AFTERWARDS = re.compile(r"logits?_(scal|soft_?cap)|(output|lm_head)_multiplier")


class Perplexity(torchmetrics.MeanMetric):
    """e to the mean loss per token: among how many tokens the model wavers, so to speak.

    Source: Jelinek et al. 1977, https://doi.org/10.1121/1.2016299.
    """

    def update(self, loss, logits, labels):
        super().update(loss.detach().mean(), labels.numel())

    def compute(self):
        """Returns the perplexity, a scalar, 1 or more."""
        return super().compute().exp()


class Causal(Texts):
    auto, tiny = AutoModelForCausalLM, models.TINY_GPT
    does, such_as = "predict the next token", "openai-community/gpt2"
    presets = {
        "tiny": {"model": models.TINY_GPT, "data": "reviews"},
        "full": {"model": "Qwen/Qwen3-0.6B", "data": "imdb"},
    }
    classes, learned = None, "perplexity"
    new_metric = functools.partial(Perplexity, nan_strategy="disable")  # a loss of NaN shows
    use = 'python 11_llm/generate.py {} "The film"'
    model_help = f"{tiny}, or folder or Hugging Face id of a model that can {does}"
    data_help = (
        "reviews (made up, part of this repository), imdb, fake, a text file, a CSV or JSONL file "
        "with the column text, or a folder of text files"
    )

    def choose(self, args):
        if args.model == self.tiny and not args.max_length:
            args.max_length = TINY_LENGTH
        super().choose(args)
        both_ways = AutoModelForMaskedLM._model_mapping  # XLNet, too, looks at all tokens
        if type(args.config) in both_ways or args.config.model_type == "xlnet":
            see = f"{args.config.model_type} models see the tokens that they would have to predict"
            raise UserError(f"--model {args.model}: {see}; choose another, such as {self.such_as}")

    model = staticmethod(models.language_model)

    def prepared(self, args):
        return packed(args)

    def collate(self, args):
        return batch

    def outputs(self, model, tokens, labels):
        """Returns the loss of each token, (batch, tokens), and None.

        The texts are taken one at a time, because logits of all would need more memory than the
        training may have.
        """
        losses = []
        for ids, following in zip(tokens["input_ids"].split(1), labels):
            logits = model(input_ids=ids).logits[0]  # (tokens, vocabulary)
            losses.append(F.cross_entropy(logits.float(), following, reduction="none"))
        return torch.stack(losses), None


def batch(examples):
    """Makes a batch of pieces of one token more: {"input_ids": (n, length)} and labels.

    The labels are the token after each, (n, length).
    """
    ids = torch.tensor([e["input_ids"] for e in examples])
    return {"input_ids": ids[:, :-1].contiguous()}, ids[:, 1:].contiguous()


def packed(args):
    """Returns the pieces, {"train", "val", "test"}, and the tokenizer; of fake ones, None."""
    args.num_classes, args.dataset = None, data.Path(args.data).resolve().stem
    if args.data == "fake":
        generator = torch.Generator().manual_seed(SPLIT_SEED)
        shape = (64, args.max_length + 1)  # a few pieces are enough, and are repeated
        ids = torch.randint(args.config.vocab_size, shape, generator=generator).tolist()
        sizes = zip(data.PARTS, (4096, 256, 256))
        return {part: [{"input_ids": ids[i % 64]} for i in range(n)] for part, n in sizes}, None
    return data.kept(args, lambda: _made(args))


def read(what):
    """Returns texts without labels, {"train": list of str}, with "test" if there is such a part."""
    if what == "reviews":
        return {"train": reviews.reviews(REVIEWS)[0]}
    found = data.load(what, kinds=tuple(data.KINDS.values()))
    train = [*found["train"]["text"], *(found["unsupervised"]["text"] if what == "imdb" else [])]
    return {"train": train, **({"test": list(found["test"]["text"])} if "test" in found else {})}


def _made(args):
    texts = read(args.data)
    if args.model == models.TINY_GPT:
        tokenizer = new_tokenizer(texts["train"], args.config.vocab_size)
    else:
        tokenizer = models.tokenizer(args)
    tokenizer.model_max_length = min(args.max_length, tokenizer.model_max_length)
    found = {part: _pieces(some, tokenizer, args.max_length) for part, some in texts.items()}
    ends = dict(zip(data.PARTS, (0.9, 1) if "test" in found else (0.8, 0.9, 1)))
    whole, start = found.pop("train"), 0
    if len(whole) < FEWEST:
        few = f"{len(whole)} pieces of {args.max_length} tokens"
        least = f"and {FEWEST} are the least; pass more text, or a smaller --max-length"
        raise UserError(f"--data {args.data}: the texts are {few}, {least}")
    for part, end in ends.items():
        found[part], start = whole[start : round(len(whole) * end)], round(len(whole) * end)
    sets = {name: Dataset.from_dict({"input_ids": p[: args.limit]}) for name, p in found.items()}
    return DatasetDict(sets), tokenizer


def _pieces(texts, tokenizer, length):
    """Returns pieces of length + 1 tokens of texts joined in random order, an end after each.

    The last token of a piece is the first of the next, so that each token is predicted once. What
    is left at the end, less than a piece, is dropped.
    """
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(SPLIT_SEED))
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    ids = []
    for i in order.tolist():
        for part in _cut(texts[i]):
            ids += tokenizer(part, add_special_tokens=False)["input_ids"]
        ids += end
    return [ids[i : i + length + 1] for i in range(0, len(ids) - length, length)]


def _cut(text):
    return (text[i : i + AT_ONCE] for i in range(0, len(text), AT_ONCE))


def new_tokenizer(texts, vocab_size):
    """Returns a tokenizer like GPT-2's, with a vocabulary made from the texts.

    It is byte-level byte pair encoding: Radford et al. 2019, *Language Models are Unsupervised
    Multitask Learners*, section 2.2; https://github.com/openai/gpt-2
    """
    core = Tokenizer(kinds.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator((part for text in texts for part in _cut(text)), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, bos_token=END)


def head(model):
    """Returns the layer that makes the logits of a model's last hidden states."""
    model = getattr(model, "module", model)  # out of Fabric's wrapper
    found, config = model.get_output_embeddings(), model.config.get_text_config().to_dict()
    further = [
        name for name, part in model.named_children() if part not in (model.base_model, found)
    ]
    further += [name for name, value in config.items() if AFTERWARDS.search(name) and value]
    if found is None or further:
        logits = f"the logits of {type(model).__name__} are not those of a single layer"
        why = f"{logits} ({', '.join(further) or 'it has none'}), so they cannot be made in parts"
        raise UserError(f"{why}; 11_llm/causal.py makes all at once")
    return found


TASK = Causal()
parse = functools.partial(cli.parse, TASK)
