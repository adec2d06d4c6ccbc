"""Texts joined and cut into pieces of equal length, without padding; each piece with what follows.

Such packing wastes no computation on padding, and all batches need the same memory.
"""

import torch
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from shared.causal.sources import source
from shared.common.errors import UserError
from shared.common.loading import SPLIT_SEED, loader, set_updates
from shared.text import configs
from shared.text.data import set_longest, tokenized
from shared.text.sources import PARTS

FEWEST = 10  # pieces to train, validate and test with
AT_ONCE = 100_000  # characters that a tokenizer gets; more in one piece would take it long
END = "<|endoftext|>"  # as in GPT-2


def loaders(args):
    """Returns the loaders of this process' share of the training, validation and test texts.

    A batch is tokens, {"input_ids": (n, length)}, and labels, (n, length), the token after each;
    all int64, with n = args.batch_size // args.shares and length = args.max_length.

    Fills in what depends on the data: args.dataset, args.updates (updates in the whole training,
    after --epochs or --max-steps) and args.epochs (as many as these updates need).

    Raises:
        UserError: the texts are missing, unusable, or cannot be downloaded.
    """
    sets, args.tokenizer = packed(args)
    parts = [loader(args, sets[part], part == "train", collate_fn=batch) for part in PARTS]
    set_updates(args, len(parts[0]))
    return parts


def batch(examples):
    """Makes a batch of pieces of one token more: {"input_ids": (n, length)} and labels."""
    ids = torch.tensor([e["input_ids"] for e in examples])
    return {"input_ids": ids[:, :-1].contiguous()}, ids[:, 1:].contiguous()


def packed(args):
    """Returns the pieces, {"train", "val", "test"}, and the tokenizer; of fake ones, None.

    They are cached in one folder for each combination of data, tokenizer and --max-length. Fills in
    args.num_classes (None) and args.dataset.

    Raises:
        UserError: the texts are missing, unusable, or cannot be downloaded.
    """
    args.num_classes = None
    if args.data == "fake":
        args.dataset = "fake"
        generator = torch.Generator().manual_seed(SPLIT_SEED)
        shape = (64, args.max_length + 1)  # a few pieces are enough, and are repeated
        ids = torch.randint(args.config.vocab_size, shape, generator=generator).tolist()
        sets = {}
        for part, n in zip(PARTS, (4096, 256, 256)):
            sets[part] = [{"input_ids": ids[i % len(ids)]} for i in range(n)]
        return sets, None
    args.dataset, fingerprint, read = source(args)
    return tokenized(args, ["packed", fingerprint], lambda: _made(args, read))


def _made(args, read):
    texts = read()
    if args.model == configs.TINY_GPT:
        tokenizer = new_tokenizer(texts["train"])
    else:
        tokenizer = configs.tokenizer(args)
    set_longest(args, tokenizer)
    pieces = {part: _pieces(found, tokenizer, args.max_length) for part, found in texts.items()}
    if "test" in pieces:
        parts = dict(zip(("train", "val"), _cut(args, pieces["train"], (0.9, 1))))
        parts["test"] = pieces["test"]
    else:
        parts = dict(zip(PARTS, _cut(args, pieces["train"], (0.8, 0.9, 1))))
    if not parts["test"]:
        raise UserError(f"--data {args.data}: the texts for testing are {_too_few(args, 0)}")
    return DatasetDict(
        {name: Dataset.from_dict({"input_ids": p[: args.limit]}) for name, p in parts.items()}
    ), tokenizer


def _pieces(texts, tokenizer, length):
    """Returns pieces of length + 1 tokens of texts joined in random order, an end after each.

    The last token of a piece is the first of the next, so that each token is guessed once. What is
    left at the end, less than a piece, is dropped.
    """
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(SPLIT_SEED))
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    ids = []
    for i in order.tolist():
        whole = texts[i]
        for start in range(0, len(whole), AT_ONCE):
            part = whole[start : start + AT_ONCE]
            ids += tokenizer(part, add_special_tokens=False)["input_ids"]
        ids += end
    return [ids[i : i + length + 1] for i in range(0, len(ids) - length, length)]


def _cut(args, pieces, ends):
    if len(pieces) < FEWEST:
        raise UserError(f"--data {args.data}: the texts are {_too_few(args, len(pieces))}")
    ends = [0, *(round(len(pieces) * end) for end in ends)]
    return [pieces[a:b] for a, b in zip(ends, ends[1:])]


def _too_few(args, n):
    return (
        f"{n} pieces of {args.max_length} tokens, and {FEWEST if n else 1} are the least; pass more"
        " text, or a smaller --max-length"
    )


def new_tokenizer(texts):
    """Returns a tokenizer like GPT-2's, with a vocabulary made from the texts.

    It is byte-level byte pair encoding: Radford et al. 2019, *Language Models are Unsupervised
    Multitask Learners*, section 2.2; https://github.com/openai/gpt-2
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=configs.TINY_GPT_OPTIONS["vocab_size"],
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    parts = (t[i : i + AT_ONCE] for t in texts for i in range(0, len(t), AT_ONCE))
    core.train_from_iterator(parts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, bos_token=END)
