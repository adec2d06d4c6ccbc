"""Texts and labels: read by `datasets`, tokenized once and cached, padded batch by batch."""

import hashlib
import json
import logging
from pathlib import Path

import datasets
import torch
import torch.nn.functional as F
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

from shared.run import loading
from shared.run.errors import UserError
from shared.run.loading import SPLIT_SEED, check_classes, made_once, split
from shared.text import models, reviews
from shared.text.tokenizer import new_tokenizer

PARTS = ("train", "val", "test")
RIGHT = {"text": "a string that is not empty", "label": "a name or a whole number"}
KINDS = {".txt": "text", ".csv": "csv", ".jsonl": "json"}
# A text file is one text; in a table, NA and None are words.
READ = {"text": {"sample_by": "document"}, "csv": {"keep_default_na": False}, "json": {}}
datasets.disable_progress_bars()
logging.getLogger("datasets").setLevel(logging.CRITICAL)  # it raises what it logs


def loaders(args):
    """Return the Loaders of this process for the training, validation and test texts.

    A batch is tokens, {"input_ids": (n, length), "attention_mask": (n, length)}, and labels, (n,),
    all int64, with n = args.batch_size // args.shares and the length of its longest text. For
    next-token prediction see causal.batch().

    Raises:
        UserError: the texts are missing, unusable, or cannot be downloaded.
    """
    sets, classes, tokenizer = args.task.prepared(args)
    config = models.for_data(args.config, classes, tokenizer)
    known = {"config": config, "tokenizer": tokenizer}
    sets = [sets[part] for part in PARTS]
    dataset = Path(args.data).resolve().stem
    return loading.loaders(args, sets, dataset, classes, args.task.collate(args, config), **known)


def prepared(args):
    """Return tokenized texts, {"train", "val", "test"}, names of classes, and the tokenizer.

    Fake texts have no tokenizer, None.
    """
    if args.data == "fake":
        config, sizes = args.config.get_text_config(), zip(PARTS, loading.fake_sizes(args))
        sets = {part: fake_texts(n, config, args.max_length) for part, n in sizes}
        return sets, list(reviews.CLASSES), None
    sets, tokenizer = kept(args, lambda: _tokenized(args, read(args.data)))
    return sets, sets["train"].features["label"].names, tokenizer


def kept(args, make):
    """Return the tokenized texts and the tokenizer that make() returns, cached for later runs."""
    made_of = [args.data, args.task.learned, args.model, getattr(args.config, "_commit_hash", None)]
    made_of += [args.max_length, args.limit]
    made_of += map(models.stamps, (args.data, args.model, reviews.__file__, reviews.WORDS))
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]

    def write(part):
        sets, tokenizer = make()
        sets.save_to_disk(part / "texts")
        tokenizer.save_pretrained(part / "tokenizer")

    folder = made_once(f"texts-{name}", write)
    sets = DatasetDict.load_from_disk(folder / "texts")
    code = args.trust_remote_code
    return sets, AutoTokenizer.from_pretrained(folder / "tokenizer", trust_remote_code=code)


def read(data):
    """Return training, validation and test texts, a DatasetDict with text and label.

    data is reviews; imdb; a CSV or JSONL file with the columns text and label; a folder of such
    files, train and test; or of text files, train/<class>/* and test/<class>/*, or <class>/*.
    """
    if data == "reviews":
        return parts({"train": labelled(*reviews.reviews(4000), reviews.CLASSES)})
    sets = text_folder(Path(data)) or load(data)
    check(data, sets, "text", lambda text: isinstance(text, str) and text.strip())
    check(data, sets, "label", is_class)
    for part, texts in sets.items():
        sets[part] = texts.select_columns(["text", "label"])
        if not isinstance(texts.features["label"], ClassLabel):
            labels = [*map(str, texts["label"])]
            sets[part] = labelled(texts["text"], labels, sorted({*labels}))
    names = {part: texts.features["label"].names for part, texts in sets.items()}
    check_classes(data, len(sets["train"]), names["train"], *names.values())
    return parts(sets)


def is_class(label):
    """Return whether a label can name a class: a text, or a whole number."""
    if isinstance(label, str):
        return label.strip()
    return isinstance(label, (int, float)) and label % 1 == 0


def check(data, sets, column, is_right):
    """Raise UserError if a column or the training part is missing, or a row is not right."""
    for part, texts in sets.items():
        if "train" not in sets or column not in texts.column_names:
            raise UserError(f"--data {data}: there must be a part train, and a column {column}")
        for row, value in enumerate(texts[column], 1):
            if not is_right(value):
                wrong = f"row {row} of {part} has the {column} {str(value)[:40]!r}"
                raise UserError(f"--data {data}: {wrong}; it must be {RIGHT[column]}")


def load(data, kinds=("csv", "json")):
    """Load a file, a folder, or IMDb from the hub with `datasets`, as a DatasetDict."""
    path = Path(data)
    ends = [end for end in KINDS if KINDS[end] in kinds]
    found = [KINDS[end] for end in ends if path.suffix == end or any(path.rglob(f"*{end}"))]
    try:
        if data == "imdb":  # Maas et al. 2011, https://aclanthology.org/P11-1015/
            return datasets.load_dataset("stanfordnlp/imdb")
        options = READ[found[0]] if found else {}
        if path.is_file() and found:
            return datasets.load_dataset(found[0], data_files=data, **options)
        if path.is_dir():  # of its files, those of the most frequent kind
            return datasets.load_dataset(data, **options)
    except Exception as error:  # of many types: no network, or a damaged file
        if isinstance(error, datasets.exceptions.DatasetGenerationError):
            error = error.__cause__  # which has the line and the column
        why = (str(error).splitlines() or ["is it empty?"])[0]
        raise UserError(f"--data {data}: it cannot be read or downloaded ({why})") from None
    instead = f"pass reviews, imdb, fake, a folder, or a file that ends in {' or '.join(ends)}"
    what = "files of this kind are not read" if path.exists() else "there is no such file or folder"
    raise UserError(f"--data {data}: {what}; {instead}")


def text_folder(path):
    """Return the texts of a folder with a folder of text files per class, else None."""
    both = [path / part for part in ("train", "test")]
    roots = both if all(part.is_dir() for part in both) else [path]
    sets = {}
    for name, root in zip(("train", "test"), roots):
        files = sorted(f for f in root.glob("*/*.txt") if f.parent.name != "unsup")  # of aclImdb
        if not files:
            return None
        labels = [file.parent.name for file in files]
        try:
            texts = [(file := path).read_text(encoding="utf-8") for path in files]
        except UnicodeDecodeError as error:
            raise UserError(f"{file} is no text in UTF-8 ({error})") from None
        sets[name] = labelled(texts, labels, sorted({*labels}))
    return sets


def labelled(texts, labels, names):
    """Return a Dataset of texts and their labels, which are names or their indices."""
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(names))})
    return Dataset.from_dict({"text": texts, "label": labels}, features)


def parts(sets):
    """Return training, validation and test texts; a missing part is a tenth of `train`."""
    whole, test = sets["train"], sets.get("test")
    val = sets.get("val", sets.get("validation"))
    if test is not None and val is not None:
        return DatasetDict({"train": whole, "val": val, "test": test})
    cuts = split(len(whole), (0.8, 0.1, 0.1) if test is None else (0.9, 0.1))
    cut = [whole.select(sorted(positions)) for positions in cuts]
    return DatasetDict(dict(zip(PARTS, cut if test is None else [*cut, test])))


def fake_texts(n, config, max_length):
    """Return n texts of random tokens with random labels, for measuring memory and speed."""
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    # A few, which are repeated; one token shorter than allowed, so that there is padding to mask.
    ids = torch.randint(config.vocab_size, (64, max(max_length - 1, 1)), generator=generator)
    end = getattr(config, "eos_token_id", None)
    special = [i for i in (config.pad_token_id, end) if isinstance(i, int)]
    usual = next(i for i in range(config.vocab_size) if i not in special)
    ids[torch.isin(ids, torch.tensor(special))] = usual
    if isinstance(end, int):
        ids[:, -1] = end  # some models expect it at the end of a text
    texts = ids.tolist()
    labels = torch.randint(2, (n,), generator=generator).tolist()
    return [{"input_ids": texts[i % len(texts)], "label": labels[i]} for i in range(n)]


def _tokenized(args, sets):
    for name, texts in sets.items():
        if args.limit:
            sets[name] = texts.shuffle(SPLIT_SEED).select(range(min(args.limit, len(texts))))
    if args.model == models.TINY:
        tokenizer = new_tokenizer(sets["train"]["text"], args.config.vocab_size)
    else:
        tokenizer = models.tokenizer(args)
    tokenizer.model_max_length = min(args.max_length, tokenizer.model_max_length)

    def ids(texts):
        return {"input_ids": tokenizer(texts["text"], truncation=True)["input_ids"]}

    return sets.map(ids, batched=True, remove_columns="text"), tokenizer


def padded(pad_token_id, multiple, examples):
    """Collate a batch; pad to the length of the longest text, rounded up to a multiple for GPUs.

    Return {"input_ids", "attention_mask"}, both (n, length), and labels, (n,), all int64.
    """
    ids = [torch.tensor(e["input_ids"]) for e in examples]
    mask = pad_sequence([torch.ones_like(x) for x in ids], batch_first=True)
    more = 0, -mask.shape[1] % multiple
    input_ids = pad_sequence(ids, batch_first=True, padding_value=pad_token_id)
    tokens = {
        "input_ids": F.pad(input_ids, more, value=pad_token_id),
        "attention_mask": F.pad(mask, more),
    }
    return tokens, torch.tensor([e["label"] for e in examples])


def micro_batches(tokens, labels, size):
    """Yield the micro-batches of a batch: tokens, {name: (size, length)}, and labels, (size,)."""
    parts = zip(*(t.split(size) for t in tokens.values()))
    for part, y in zip(parts, labels.split(size)):
        yield dict(zip(tokens, part)), y
