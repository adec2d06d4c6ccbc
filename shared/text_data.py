"""Texts and labels for 11_llm: read, tokenized once and kept, padded batch by batch."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import datasets
import torch
from datasets import DatasetDict
from filelock import FileLock
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors, trainers
from tokenizers import models as tokenizer_models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from shared import UserError, data, models, reviews, text_models
from shared.text_sources import PARTS, source, stamps

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


def loaders(args):
    """Returns the loaders of the training, validation and test texts, of this process' share of each.

    A batch is tokens, {"input_ids": (n, length), "attention_mask": (n, length)}, and labels, (n,), all int64, with
    n = args.batch_size // args.world_size and the length of its own longest text. Every k-th batch of all processes
    together holds the same texts as the k-th batch of a single one.
    Fills in what only the data can tell: args.num_classes, args.dataset, args.config.pad_token_id and label names,
    args.updates (updates in the whole training, after --epochs or --max-steps) and args.epochs (as many as these need).

    Raises:
        UserError: the texts are missing, unusable, or cannot be downloaded.
    """
    sets, args.tokenizer = prepared(args)
    pad = Padding(args.config.pad_token_id, args.max_length)
    parts = [data.loader(args, sets[part], shuffle=part == "train", collate_fn=pad) for part in PARTS]
    data.set_updates(args, len(parts[0]))
    return parts


class Padding:
    """Makes a batch of examples: as long as the longest of them, rounded up to 8, which suits the kernels of a GPU."""

    def __init__(self, pad_token_id, max_length):
        self.pad_token_id = pad_token_id
        self.multiple = 8 if max_length % 8 == 0 else 1  # else rounding could exceed what the model takes

    def __call__(self, examples):
        ids = [torch.tensor(e["input_ids"]) for e in examples]
        longest = -(-max(map(len, ids)) // self.multiple) * self.multiple
        input_ids = torch.full((len(ids), longest), self.pad_token_id)
        mask = torch.zeros_like(input_ids)
        for i, x in enumerate(ids):
            input_ids[i, : len(x)] = x
            mask[i, : len(x)] = 1
        return {"input_ids": input_ids, "attention_mask": mask}, torch.tensor([e["label"] for e in examples])


def prepared(args):
    """Returns the tokenized texts, {"train", "val", "test"}, and the tokenizer; of fake ones, None.

    They are kept beside the weights' cache, one folder for each combination of data, tokenizer and --max-length.
    Fills in args.num_classes, args.dataset, and what args.config must know of labels and padding.

    Raises:
        UserError: the texts are missing, unusable, or cannot be downloaded.
    """
    config = args.config
    if args.data == "fake":
        args.dataset, names, tokenizer = "fake", reviews.CLASSES, None
        sets = {part: fake_texts(n, config.get_text_config(), args.max_length) for part, n in zip(PARTS, (4096, 256, 256))}
    else:
        args.dataset, fingerprint, read = source(args)
        folder = tokenized(args, fingerprint, read)
        sets = DatasetDict.load_from_disk(folder / "data")
        tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer", trust_remote_code=args.trust_remote_code)
        names = sets["train"].features["label"].names
        for part in (config, config.get_text_config()):
            part.pad_token_id = tokenizer.pad_token_id
    args.num_classes = len(names)
    config.id2label, config.label2id = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
    return sets, tokenizer


def fake_texts(n, config, max_length):
    """Returns n texts of random tokens with random labels, to measure memory and speed with: all of them as long as
    possible, but for one token, so that there is padding to hide, as in real batches.
    """
    generator = torch.Generator().manual_seed(data.SPLIT_SEED)
    ids = torch.randint(config.vocab_size, (64, max(max_length - 1, 1)), generator=generator)  # used again and again
    end = getattr(config, "eos_token_id", None)
    special = [i for i in (config.pad_token_id, end) if isinstance(i, int)]
    ids[torch.isin(ids, torch.tensor(special))] = next(i for i in range(config.vocab_size) if i not in special)
    if isinstance(end, int):
        ids[:, -1] = end  # some models look for the one at the end of a text
    labels = torch.randint(2, (n,), generator=generator)
    return [{"input_ids": ids[i % len(ids)].tolist(), "label": int(labels[i])} for i in range(n)]


def tokenized(args, fingerprint, read):
    """Returns the folder with the tokenized texts, data/, and tokenizer/; makes it if it is not there yet.

    Args:
        fingerprint: what the texts can be recognised by.
        read: function that returns the texts, as a DatasetDict.

    Raises:
        UserError: read() says so, or the folder cannot be written.
    """
    own = stamps(Path(args.model).glob("*"))
    key = json.dumps([fingerprint, args.model, own, getattr(args.config, "_commit_hash", None), args.max_length, args.limit])
    folder = models.cache_folder() / "tokenized" / hashlib.sha256(key.encode()).hexdigest()[:16]
    part = folder.with_suffix(".part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):  # one process tokenizes, the others wait
            if not folder.exists():
                shutil.rmtree(part, ignore_errors=True)
                sets = read()
                if args.limit:
                    sets = DatasetDict({name: s.shuffle(data.SPLIT_SEED).select(range(min(args.limit, len(s)))) for name, s in sets.items()})
                tokenizer = new_tokenizer(sets["train"]["text"]) if args.model == text_models.TINY else text_models.tokenizer(args)
                longest = min(args.max_length, tokenizer.model_max_length)
                if args.wanted_length and longest < args.wanted_length:
                    raise UserError(f"--max-length {args.max_length}: the tokenizer of {args.model} allows {longest} tokens at most")
                tokenizer.model_max_length = longest  # for those who use it after --save
                sets = sets.map(
                    lambda texts: {"input_ids": tokenizer(texts["text"], truncation=True, max_length=longest)["input_ids"]},
                    batched=True,
                    remove_columns="text",
                    desc="tokenizing, once",
                )
                datasets.disable_progress_bars()
                sets.save_to_disk(part / "data")
                tokenizer.save_pretrained(part / "tokenizer")
                os.replace(part, folder)
    except OSError as error:
        raise UserError(f"cannot write {folder} ({error.strerror or error}); set TORCH_HOME to a folder with free space") from None
    return folder


def new_tokenizer(texts):
    """Returns a WordPiece tokenizer as BERT's (https://arxiv.org/abs/1810.04805, section 3), lower case, with a vocabulary
    made from the texts.
    """
    core = Tokenizer(tokenizer_models.WordPiece(unk_token=SPECIAL["unk_token"]))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=text_models.TINY_OPTIONS["vocab_size"], special_tokens=list(SPECIAL.values()), show_progress=False)
    core.train_from_iterator(texts, trainer)
    sep, cls = (SPECIAL[name] for name in ("sep_token", "cls_token"))
    core.post_processor = processors.BertProcessing((sep, core.token_to_id(sep)), (cls, core.token_to_id(cls)))
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=512, **SPECIAL)
