"""Causal language modeling: next-token prediction on packed texts, measured by perplexity.

Packing joins texts and cuts them into pieces of one length: no padding, equal memory per batch.
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

from shared.run import cli
from shared.run.errors import UserError
from shared.run.loading import SPLIT_SEED, fake_sizes
from shared.text import data, models, reviews
from shared.text.cli import Texts

TINY_LENGTH = 128  # tokens; the made-up reviews are few
REVIEWS = 8_000  # enough for some 75 updates of 12 texts of 128 tokens
FEWEST = 10  # pieces in all, to train, validate and test with
AT_MOST = 2**22  # fake tokens, as Python numbers: 150 MB
AT_ONCE = 100_000  # characters per call of a tokenizer, which is slow with long texts
END = "<|endoftext|>"  # as in GPT-2
MLP = ("mlp", "ffn")  # names of the MLP of a block, which differ by family
# Names in configurations of models that scale or cap logits after the head.
AFTERWARDS = re.compile(r"logits?_(scal|soft_?cap)|(output|lm_head)_multiplier")


class Perplexity(torchmetrics.MeanMetric):
    """exp of the mean cross-entropy per token: as uncertain as a choice among that many tokens.

    Source: Jelinek et al. 1977, https://doi.org/10.1121/1.2016299.
    """

    def update(self, loss, logits, labels):
        super().update(loss.detach().mean(), labels.numel())

    def compute(self):
        """Return the perplexity, a scalar, 1 or more."""
        return super().compute().exp()


class Causal(Texts):
    """The task of next-token prediction."""

    auto, tiny = AutoModelForCausalLM, models.TINY_GPT
    does, such_as = "predict the next token", "openai-community/gpt2"
    presets = {
        "tiny": {"model": models.TINY_GPT, "data": "reviews"},
        "full": {"model": "Qwen/Qwen3-0.6B", "data": "imdb"},
    }
    classes, learned = None, "perplexity"
    new_metric = functools.partial(Perplexity, nan_strategy="disable")  # keeps a NaN loss
    use = 'python 11_llm/generate.py {} "The film"'
    model_help = f"{tiny}, or folder or Hugging Face id of a model that can {does}"
    data_help = (
        "reviews (made up, part of this repository), imdb, fake, a text file, a CSV or JSONL file "
        "with the column text, or a folder of text files"
    )

    def choose(self, args):
        """Set the options as Texts does; refuse models that see the tokens to predict."""
        if args.model == self.tiny and not args.max_length:
            args.max_length = TINY_LENGTH
        super().choose(args)
        both_ways = AutoModelForMaskedLM._model_mapping  # XLNet, too, looks at all tokens
        if type(args.config) in both_ways or args.config.model_type == "xlnet":
            see = f"{args.config.model_type} models see the tokens that they would have to predict"
            raise UserError(f"--model {args.model}: {see}; choose another, such as {self.such_as}")

    def prepared(self, args):
        return packed(args)

    def collate(self, args, config):
        return batch

    def outputs(self, model, tokens, labels):
        """Return the loss of each token, (batch, tokens), and None.

        Compute the logits of one text at a time: those of all texts could need more memory than
        the run has.
        """
        losses = []
        for ids, following in zip(tokens["input_ids"].split(1), labels):
            logits = model(input_ids=ids).logits[0]  # (tokens, vocabulary)
            losses.append(F.cross_entropy(logits.float(), following, reduction="none"))
        return torch.stack(losses), None


def batch(examples):
    """Collate pieces of length + 1 tokens into {"input_ids": (n, length)} and labels.

    The labels, (n, length), are the next token of each input token.
    """
    ids = torch.tensor([e["input_ids"] for e in examples])
    return {"input_ids": ids[:, :-1].contiguous()}, ids[:, 1:].contiguous()


def packed(args):
    """Return packed texts, {"train", "val", "test"}, no classes, and the tokenizer.

    Fake texts have no tokenizer, None.
    """
    if args.data == "fake":
        generator = torch.Generator().manual_seed(SPLIT_SEED)
        few = min(64, max(AT_MOST // args.max_length, 1))  # pieces, which are repeated
        shape = (few, args.max_length + 1)
        ids = torch.randint(args.config.vocab_size, shape, generator=generator).tolist()
        sizes = zip(data.PARTS, fake_sizes(args))
        sets = {part: [{"input_ids": ids[i % few]} for i in range(n)] for part, n in sizes}
        return sets, None, None
    sets, tokenizer = data.kept(args, lambda: _made(args))
    return sets, None, tokenizer


def read(what):
    """Return texts without labels, {"train": list of str}, and "test" if there is such a part."""
    if what == "reviews":
        return {"train": reviews.reviews(REVIEWS)[0]}
    sets = data.load(what, kinds=tuple(data.KINDS.values()))
    data.check(what, sets, "text", lambda text: isinstance(text, str))
    texts = {"train": list(sets["train"]["text"])}
    if what == "imdb":
        texts["train"] += sets["unsupervised"]["text"]
    if "test" in sets:
        texts["test"] = list(sets["test"]["text"])
    return texts


def _made(args):
    texts = read(args.data)
    if args.model == args.task.tiny:
        tokenizer = new_tokenizer(texts["train"], args.config.vocab_size)
    else:
        tokenizer = models.tokenizer(args)
    tokenizer.model_max_length = min(args.max_length, tokenizer.model_max_length)
    pieces = {part: _pieces(some, tokenizer, args.max_length) for part, some in texts.items()}
    ends = dict(zip(data.PARTS, (0.9, 1) if "test" in pieces else (0.8, 0.9, 1)))
    whole, start = pieces.pop("train"), 0
    if len(whole) < FEWEST:
        few = f"{len(whole)} pieces of {args.max_length} tokens"
        least = f"but at least {FEWEST} are needed; pass more text, or a smaller --max-length"
        raise UserError(f"--data {args.data}: the texts make {few}, {least}")
    for part, end in ends.items():
        stop = round(len(whole) * end)
        pieces[part] = whole[start:stop]
        start = stop
    sets = {name: Dataset.from_dict({"input_ids": p[: args.limit]}) for name, p in pieces.items()}
    return DatasetDict(sets), tokenizer


def _pieces(texts, tokenizer, length):
    """Return pieces of length + 1 tokens, cut from the texts joined in random order.

    An end-of-text token follows each text. The last token of a piece is the first of the next, so
    that each token is predicted once. The remainder, less than a piece, is dropped.
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
    """Return a tokenizer like GPT-2's, byte-level byte pair encoding, trained on the texts.

    Source: Radford et al. 2019, *Language Models are Unsupervised Multitask Learners*, section 2.2;
    https://github.com/openai/gpt-2
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
    """Return the output layer of a model, which computes logits from the last hidden states."""
    model = getattr(model, "module", model)  # without Fabric's wrapper
    layer, config = model.get_output_embeddings(), model.config.get_text_config().to_dict()
    further = [
        name for name, part in model.named_children() if part not in (model.base_model, layer)
    ]
    further += [name for name, value in config.items() if AFTERWARDS.search(name) and value]
    if layer is None or further:
        logits = f"the logits of {type(model).__name__} are not those of a single layer"
        why = f"{logits} ({', '.join(further) or 'it has none'}), so chunks of them cannot be made"
        raise UserError(f"{why}; 11_llm/causal.py computes all at once")
    return layer


def mlps(model):
    """Return the MLP of each block of a transformer; an MLP computes each token by itself."""
    blocks = models.blocks(model)
    found = [next((m for n, m in b.named_children() if n in MLP), None) for b in blocks]
    if None in found or any(hasattr(mlp, "experts") for mlp in found):
        instead = "no module named mlp or ffn" if None in found else "mixtures of experts"
        nothing = f"{type(model).__name__} has no MLPs to tile (its blocks have {instead})"
        raise UserError(f"{nothing}; 11_llm/causal.py computes all at once")
    return found


def liger_fused_linear_cross_entropy(hidden, weight, labels, bias=None):
    """Return the mean loss of a linear layer's logits by Liger's function of this name.

    Its kernels are for GPUs; a CPU computes all logits at once. hidden: (tokens, width).
    """
    if not hidden.is_cuda:
        return F.cross_entropy(F.linear(hidden, weight, bias), labels)
    from liger_kernel.transformers import functional  # not on macOS, since it needs Triton

    return functional.liger_fused_linear_cross_entropy(hidden, weight, labels, bias)


TASK = Causal()
parse = functools.partial(cli.parse, TASK)
