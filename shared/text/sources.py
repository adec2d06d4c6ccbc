"""Where texts and labels come from: made-up reviews, IMDb, folders of text files, CSV and JSONL."""

import contextlib
import hashlib
import os
import re
from pathlib import Path

import datasets
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from tqdm import tqdm

from shared.common.errors import UserError, shown
from shared.common.files import stamps
from shared.common.loading import SPLIT_SEED
from shared.text import reviews
from shared.text.files import READERS, fits_memory, rows, text, whole_characters

PARTS = ("train", "val", "test")
MOST_CLASSES = 100
MOST_CHARACTERS = 1_000_000  # of a text: 500 pages; all of them are tokenized, then cut off
NO_CLASSES = ("unsup", "lost+found")  # reviews without a label, in aclImdb; what was not lost


def source(args):
    """Returns the name of the texts of args.data, what identifies them, and how to read them.

    The last is a function that returns a DatasetDict of PARTS with the columns text and label. It
    raises UserError if the texts are unusable.

    Raises:
        UserError: there is nothing of that name.
    """
    path = Path(args.data)
    if args.data == "reviews":
        return "reviews", hashlib.sha256(Path(reviews.__file__).read_bytes()).hexdigest(), made_up
    if args.data == "imdb":
        return "imdb", "stanfordnlp/imdb", imdb
    if os.path.isfile(path):  # Path.is_file() would raise an error for a name that is too long
        if path.suffix not in READERS:
            raise UserError(f"--data {path}: the name of a file must end in .csv or .jsonl")
        return path.stem, stamps([path]), lambda: _split(from_file(path))
    if not os.path.isdir(path):
        none = "this is no" if os.path.exists(path) else "there is no such"
        raise UserError(
            f"--data {shown(args.data)}: {none} file or folder; pass reviews, imdb, fake, a folder"
            " like aclImdb, or a CSV or JSONL file"
        )
    possible = [(part, path / (part + suffix)) for part in PARTS for suffix in READERS]
    files = {part: file for part, file in possible if file.is_file()}
    if files:
        return path.resolve().name, stamps(files.values()), lambda: from_files(path, files)
    files = [file for part in _parts_of(path) for _, file in _texts(part)]
    return path.resolve().name, stamps(files), lambda: from_folder(path)


def made_up():
    """Returns 4,000 made-up reviews: 3,200 to train with, 400 each to validate and test."""
    texts, labels = reviews.reviews(4000)
    names = [reviews.CLASSES[y] for y in labels]
    return _split(_labelled(texts, names, reviews.CLASSES, range(len(texts))))


def imdb():
    """Returns the 50,000 labelled film reviews of IMDb: 22,500, 2,500 and 25,000.

    Source: Maas et al. 2011, https://aclanthology.org/P11-1015/, from the Hugging Face hub.

    Raises:
        UserError: they cannot be downloaded.
    """
    sets = downloaded_imdb()
    return _validated({"train": sets["train"], "test": sets["test"]})


def downloaded_imdb():
    """Returns IMDb as the hub has it: train, test and unsupervised, with text and label.

    Raises:
        UserError: it cannot be downloaded.
    """
    try:
        return datasets.load_dataset("stanfordnlp/imdb")
    except Exception as error:
        # Without a network, or with a damaged cache, it depends on what is there.
        why = shown((str(error).splitlines() or [type(error).__name__])[0])
        raise UserError(
            f"IMDb could not be downloaded ({why}); pass --data reviews, --data fake, or --data"
            " FOLDER with aclImdb unpacked"
        ) from None


def from_folder(folder):
    """Returns the texts of a folder of text files.

    Layout: train/<class>/*.txt and test/<class>/*.txt, as in aclImdb, or <class>/*.txt.

    Raises:
        UserError: there are none, too few classes, or different classes in train and test.
    """
    if (folder / "train").is_dir() != (folder / "test").is_dir():
        raise UserError(
            f"--data {folder}: there is only one of train and test; add the other, or pass a folder"
            " with <class>/*.txt to have it split"
        )
    sets = [_read_classes(part) for part in _parts_of(folder)]
    if len(sets) == 1:
        return _split(sets[0])
    return _validated(_same_classes(folder, dict(zip(("train", "test"), sets))))


def _parts_of(folder):
    split = [folder / part for part in ("train", "test")]
    return split if all(part.is_dir() for part in split) else [folder]


def _texts(folder):
    """Returns the texts in a folder's folders, in order: (class, file)."""
    found = []
    try:
        for name in sorted(os.listdir(folder)):
            if os.path.isdir(folder / name) and name not in NO_CLASSES:
                with contextlib.suppress(FileNotFoundError):  # it is gone meanwhile
                    found += [(name, folder / name / file) for file in os.listdir(folder / name)]
    except OSError as error:
        raise UserError(
            f"--data {folder}: {error.filename} cannot be read ({error.strerror}); mend or remove"
            " it"
        ) from None
    return sorted((name, file) for name, file in found if file.name.endswith(".txt"))


def _read_classes(folder):
    found = _texts(folder)
    labels, files = zip(*found) if found else ((), ())
    classes = sorted(set(labels))
    if len(classes) < 2:
        found = f"{shown(classes[0])} is the only class" if classes else "there are no texts"
        raise UserError(
            f"--data {folder}: {found}; there must be two classes or more, each a folder with *.txt"
            " in it"
        )
    fits_memory(folder, files)
    about = f"reading {len(files):,} texts of {len(classes)} classes in {folder}"
    texts = [text(file) for file in tqdm(files, desc=about, unit="text", delay=1)]
    return _labelled(texts, labels, classes, files)


def from_files(folder, files):
    """Returns the texts of train.csv, test.csv and, if it is there, val.csv; or of .jsonl files.

    Raises:
        UserError: one is missing or unusable, or they have different classes.
    """
    missing = [part for part in ("train", "test") if part not in files]
    if missing:
        raise UserError(
            f"--data {folder}: {missing[0]}.csv or {missing[0]}.jsonl is missing; add it, or pass"
            " one file to have it split"
        )
    sets = _same_classes(folder, {part: from_file(file) for part, file in files.items()})
    return DatasetDict(sets) if "val" in sets else _validated(sets)


def from_file(file):
    """Returns the texts of a CSV or JSONL file with the columns text and label, as a Dataset.

    Raises:
        UserError: it has no such columns, no rows, rows without text or label, or labels that are
            not classes.
    """
    fits_memory(file, [file])
    found = rows(file, ("text", "label"))
    texts, labels = ([str(row[column]) for row in found] for column in ("text", "label"))
    classes = sorted(set(labels), key=_natural)
    if len(classes) > MOST_CLASSES or len(classes) > max(2, len(labels) // 2):
        raise UserError(
            f"--data {file}: {len(classes)} different labels in {len(labels)} rows, such as"
            f" {shown(classes[0])} and {shown(classes[-1])}, are no classes; label must be one of"
            f" at most {MOST_CLASSES} classes"
        )
    if len(classes) < 2:
        raise UserError(
            f"--data {file}: "
            f"{'every label is ' + shown(classes[0]) if classes else 'there are no rows'};"
            " there must be two classes or more"
        )
    return _labelled(texts, labels, classes, [f"{file}: row {i + 1}" for i in range(len(texts))])


def _natural(text):
    parts = re.split(r"(\d+)", text)
    numbers = {part: part.lstrip("0") for part in parts if part.isdecimal()}
    return [(len(numbers[p]), numbers[p]) if p in numbers else (-1, p) for p in parts]


def _labelled(texts, labels, classes, where):
    """Makes a Dataset of texts and their labels.

    Args:
        texts, labels: lists of str.
        classes: the names of the labels in order.
        where: for each text what to call it.

    Raises:
        UserError: a text is too long, or holds half a character, or its label does.
    """
    for columns in (texts, labels):
        for name, value in zip(where, columns):
            if len(value) > MOST_CHARACTERS:
                raise UserError(
                    f"{name} has {len(value):,} characters in one piece, and {MOST_CHARACTERS:,}"
                    " are the most; cut it off or remove it"
                )
        whole_characters(columns, where)
    names = list(classes)
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    columns = {"text": texts, "label": [names.index(y) for y in labels]}
    return Dataset.from_dict(columns, features=features)


def _same_classes(folder, sets):
    names = {part: s.features["label"].names for part, s in sets.items()}
    for part in names:
        if names[part] != names["train"]:
            odd = sorted(set(names[part]) ^ set(names["train"]))
            raise UserError(
                f"--data {folder}: train and {part} must have the same classes, but"
                f" {shown(odd[0])} is in one of them only"
            )
    return sets


def _split(texts):
    """Splits a Dataset: 80 % to train with, 10 % each to validate and test."""
    return _parts(texts, (0.8, 0.9, 1))


def _validated(sets):
    """Takes a tenth of the training texts for validation."""
    return DatasetDict({**_parts(sets["train"], (0.9, 1)), "test": sets["test"]})


def _parts(texts, ends):
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(SPLIT_SEED)).tolist()
    ends = [0, *(round(len(texts) * end) for end in ends)]
    if min(b - a for a, b in zip(ends, ends[1:])) == 0:
        raise UserError(
            f"{len(texts)} texts are too few to train, validate and test with; 10 is the least"
        )
    cuts = zip(PARTS, ends, ends[1:])
    return DatasetDict({part: texts.select(sorted(order[a:b])) for part, a, b in cuts})
