"""Texts and labels: read, tokenized once and kept, padded batch by batch."""

import hashlib
import json
import os
from pathlib import Path

import datasets
import torch
from datasets import DatasetDict
from transformers import AutoTokenizer

from shared.common.errors import UserError
from shared.common.files import cache_folder, cannot_cache, lock, remove, stamps
from shared.common.loading import SPLIT_SEED, loader, set_updates
from shared.text import configs, reviews
from shared.text.sources import PARTS, source
from shared.text.tokenizer import new_tokenizer


def loaders(args):
    """Returns the loaders of this process' share of the training, validation and test texts.

    A batch is tokens, {"input_ids": (n, length), "attention_mask": (n, length)}, and labels, (n,),
    all int64, with n = args.batch_size // args.shares and the length of its longest text. The
    k-th batches of all processes together hold the same texts as the k-th batch of a single
    process.

    Fills in what depends on the data: args.num_classes, args.dataset, args.config.pad_token_id and
    label names, args.updates (updates in the whole training, after --epochs or --max-steps) and
    args.epochs (as many as these updates need).

    Raises:
        UserError: the texts are missing, unusable, or cannot be downloaded.
    """
    sets, args.tokenizer = prepared(args)
    pad = Padding(args.config.pad_token_id, args.max_length)
    parts = [loader(args, sets[part], shuffle=part == "train", collate_fn=pad) for part in PARTS]
    set_updates(args, len(parts[0]))
    return parts


class Padding:
    """Makes a batch of examples, padded to the longest of them.

    The length is rounded up to a multiple of 8, which suits the kernels of a GPU.
    """

    def __init__(self, pad_token_id, max_length):
        self.pad_token_id = pad_token_id
        # If max_length is no multiple of 8, rounding up could exceed what the model takes.
        self.multiple = 8 if max_length % 8 == 0 else 1

    def __call__(self, examples):
        ids = [torch.tensor(e["input_ids"]) for e in examples]
        longest = -(-max(map(len, ids)) // self.multiple) * self.multiple
        input_ids = torch.full((len(ids), longest), self.pad_token_id)
        mask = torch.zeros_like(input_ids)
        for i, x in enumerate(ids):
            input_ids[i, : len(x)] = x
            mask[i, : len(x)] = 1
        labels = torch.tensor([e["label"] for e in examples])
        return {"input_ids": input_ids, "attention_mask": mask}, labels


def prepared(args):
    """Returns the tokenized texts, {"train", "val", "test"}, and the tokenizer; of fake ones, None.

    They are cached in one folder for each combination of data, tokenizer and --max-length. Fills in
    args.num_classes, args.dataset, and in args.config the labels and the padding.

    Raises:
        UserError: the texts are missing, unusable, or cannot be downloaded.
    """
    config = args.config
    if args.data == "fake":
        args.dataset, names, tokenizer = "fake", reviews.CLASSES, None
        sets = {}
        for part, n in zip(PARTS, (4096, 256, 256)):
            sets[part] = fake_texts(n, config.get_text_config(), args.max_length)
    else:
        args.dataset, fingerprint, read = source(args)
        sets, tokenizer = tokenized(args, fingerprint, lambda: _made(args, read))
        names = sets["train"].features["label"].names
        for part in (config, config.get_text_config()):
            part.pad_token_id = tokenizer.pad_token_id
    args.num_classes = len(names)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: i for i, name in enumerate(names)}
    return sets, tokenizer


def fake_texts(n, config, max_length):
    """Returns n texts of random tokens with random labels, for measuring memory and speed.

    All are one token shorter than possible, so that there is padding to mask, as in real batches.
    """
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    # A few texts are enough, and are repeated.
    shape = (64, max(max_length - 1, 1))
    ids = torch.randint(config.vocab_size, shape, generator=generator)
    end = getattr(config, "eos_token_id", None)
    special = [i for i in (config.pad_token_id, end) if isinstance(i, int)]
    usual = next(i for i in range(config.vocab_size) if i not in special)
    ids[torch.isin(ids, torch.tensor(special))] = usual
    if isinstance(end, int):
        ids[:, -1] = end  # some models look for it at the end of a text
    labels = torch.randint(2, (n,), generator=generator)
    return [{"input_ids": ids[i % len(ids)].tolist(), "label": int(labels[i])} for i in range(n)]


def tokenized(args, fingerprint, make):
    """Returns the tokenized texts and the tokenizer from the cache.

    They are in a folder, in data/ and tokenizer/, which is made if it is not there yet or of no
    use. contents.json tells what was written.

    Args:
        args: the options.
        fingerprint: what identifies the texts, and what make() does with them.
        make: function that returns the texts, a DatasetDict of PARTS, and the tokenizer.

    Raises:
        UserError: make() raises it, or the folder cannot be written.
    """
    own, commit = stamps(Path(args.model).glob("*")), getattr(args.config, "_commit_hash", None)
    key = json.dumps([fingerprint, args.model, own, commit, args.max_length, args.limit])
    folder = cache_folder() / "tokenized" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if found := _kept(args, folder):
        return found
    part = folder.with_suffix(".part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(f"{folder}.lock"):  # one process tokenizes, the others wait
            if found := _kept(args, folder):
                return found
            if os.path.lexists(folder):
                print(f"- {folder} is damaged: it is made again", flush=True)
            remove(part)
            sets, tokenizer = make()
            try:
                datasets.disable_progress_bars()
                sets.save_to_disk(part / "data")
                tokenizer.save_pretrained(part / "tokenizer")
                (part / CONTENTS).write_text(json.dumps(_contents(part)))
                remove(folder)
                os.replace(part, folder)
            finally:
                remove(part)
    except OSError as error:
        raise cannot_cache(folder, error) from None
    return _kept(args, folder) or (sets, tokenizer)


CONTENTS = "contents.json"


def _contents(folder):
    """Returns the size of every file in a folder, and the hash of those that are not texts."""
    found = {}
    for file in sorted(folder.glob("*/**/*")):
        if file.is_file():
            digest = None if file.suffix == ".arrow" else hashlib.sha256(file.read_bytes())
            size = file.stat().st_size
            found[str(file.relative_to(folder))] = [size, digest and digest.hexdigest()]
    return found


def _kept(args, folder):
    """Returns the tokenized texts and the tokenizer in a folder; None if it is damaged."""
    contents = folder / CONTENTS
    if not os.path.isfile(contents):  # opening a named pipe would wait
        return None
    try:
        # Others may have put files there, but what was written must be as it was.
        if not json.loads(contents.read_text()).items() <= _contents(folder).items():
            return None
        sets = DatasetDict.load_from_disk(folder / "data")
        for part in PARTS:
            sets[part].data.validate(full=True)  # a false length in it would end the process
        tokenizer = AutoTokenizer.from_pretrained(
            folder / "tokenizer", trust_remote_code=args.trust_remote_code
        )
    except Exception:  # a damaged file has many names: those of json, Arrow and tokenizers
        return None
    return sets, tokenizer


def _made(args, read):
    sets = read()
    if args.limit:
        sets = _limited(sets, args.limit)
    if args.model == configs.TINY:
        tokenizer = new_tokenizer(sets["train"]["text"])
    else:
        tokenizer = configs.tokenizer(args)
    set_longest(args, tokenizer)
    return _tokenized(sets, tokenizer), tokenizer


def set_longest(args, tokenizer):
    """Tells a tokenizer how many tokens a text has at most, for whoever loads it after --save.

    Raises:
        UserError: it allows fewer than --max-length says.
    """
    longest = min(args.max_length, tokenizer.model_max_length)
    if args.wanted_length and longest < args.wanted_length:
        raise UserError(
            f"--max-length {args.max_length}: the tokenizer of {args.model} allows"
            f" {longest} tokens at most"
        )
    tokenizer.model_max_length = longest


def _limited(sets, n):
    found = {}
    for name, texts in sets.items():
        found[name] = texts.shuffle(SPLIT_SEED).select(range(min(n, len(texts))))
    return DatasetDict(found)


def _tokenized(sets, tokenizer):
    longest = tokenizer.model_max_length

    def ids(texts):
        found = tokenizer(texts["text"], truncation=True, max_length=longest)
        return {"input_ids": found["input_ids"]}

    return sets.map(ids, batched=True, remove_columns="text", desc="tokenizing, once")


def micro_batches(tokens, labels, size):
    """Yields a batch in parts: tokens, {name: (size, length)}, and labels, (size,).

    Args:
        tokens, labels: of the batch.
        size: texts per part; the last part may be smaller.
    """
    parts = zip(*(t.split(size) for t in tokens.values()))
    for part, y in zip(parts, labels.split(size)):
        yield dict(zip(tokens, part)), y
