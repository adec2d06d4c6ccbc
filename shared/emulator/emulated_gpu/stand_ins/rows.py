"""Rows of noise in place of data sets of the Hugging Face hub that are missing.

rows.json has the columns of well-known ones: a number of words, of classes, or the edge of images.
"""

import json
import random
from pathlib import Path

from emulated_gpu.stand_ins.notes import note, replace

ROWS = 1000  # of a split
SPREAD = 0.6  # standard deviation of the logarithm of a text's length, as of imdb's reviews
WORDS = "a in of the and to is was it for that on as with his they be at one have this".split()


def known(name, config=None):
    """Return {split: {column: what it holds}} of a data set by its name, or None.

    What a column holds is {"words": their mean number}, {"classes": number}, {"numbers": 1} for
    those of the rows, {"px": the edge of an image}, or {"chat": the words of each of two messages}.
    """
    facts = json.loads(Path(__file__).with_suffix(".json").read_text())
    key = str(name).rpartition("/")[2].lower()
    found = facts.get(f"{key}/{config}") or facts.get(key)
    return found and {split: found["columns"] for split in found["splits"]}


def in_datasets(module):
    """Let load_dataset() of the module datasets.load give noise where a data set is missing."""
    replace(module, "load_dataset", _load)


def _load(original, path, name=None, *args, **kwargs):
    try:
        return original(path, name, *args, **kwargs)
    except OSError:  # not in the cache, and not reached
        splits = known(path, name)
        if not splits:
            raise
    wanted = kwargs.get("split")
    note(f"the data set {path} is missing; {ROWS:,} rows of noise replace each of its splits")
    if isinstance(wanted, (list, tuple)):
        return [_split(splits, text, kwargs) for text in wanted]
    if wanted:
        return _split(splits, wanted, kwargs)
    from datasets import DatasetDict, IterableDatasetDict

    kind = IterableDatasetDict if kwargs.get("streaming") else DatasetDict
    return kind({split: _split(splits, split, kwargs) for split in splits})


def _split(splits, text, options):
    """Return a split, a part of one such as train[:10%], or several, as datasets reads the text.

    Raises:
        ValueError: the data set has no such split.
    """
    from datasets import ReadInstruction, concatenate_datasets

    parts = ReadInstruction.from_spec(str(text)).to_absolute(dict.fromkeys(splits, ROWS))
    made = [_made(splits[p.splitname], ROWS).select(range(p.from_, p.to)) for p in parts]
    rows = concatenate_datasets(made)
    return rows.to_iterable_dataset() if options.get("streaming") else rows


def _made(columns, rows):
    from datasets import ClassLabel, Dataset, Features, Image, Value

    draw = random.Random(0)
    data, features = {}, {}
    for name, holds in columns.items():
        ((kind, n),) = holds.items()
        if kind == "classes":
            features[name] = ClassLabel(num_classes=n)
            data[name] = [i % n for i in range(rows)]
        elif kind == "numbers":
            features[name] = Value("int32")
            data[name] = [*range(rows)]
        elif kind == "px":
            features[name] = Image()
            data[name] = [_image(n)] * rows
        elif kind == "chat":
            role = {"role": Value("string"), "content": Value("string")}
            features[name] = [role]
            data[name] = [_chat(draw, n) for _ in range(rows)]
        else:
            features[name] = Value("string")
            data[name] = [_text(draw, n) for _ in range(rows)]
    return Dataset.from_dict(data, features=Features(features))


def _text(draw, words):
    """Return a text of so many words on average: a batch is as long as its longest text."""
    many = words * draw.lognormvariate(-(SPREAD**2) / 2, SPREAD)
    return " ".join(draw.choices(WORDS, k=max(round(many), 1)))


def _chat(draw, words):
    said = (_text(draw, words) for _ in range(2))
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said)]


def _image(px):
    from PIL import Image

    return Image.effect_noise((px, px), 64).convert("RGB")
