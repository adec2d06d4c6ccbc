"""Where texts without labels come from: made-up reviews, IMDb, text files, CSV and JSONL."""

import hashlib
import os
from pathlib import Path

from shared.common.errors import UserError, shown
from shared.common.files import stamps
from shared.text import reviews
from shared.text.files import READERS, fits_memory, rows, text, whole_characters
from shared.text.sources import downloaded_imdb

REVIEWS = 8_000  # enough for some 75 updates of 12 texts of 128 tokens


def source(args):
    """Returns the name of the texts of args.data, what identifies them, and how to read them.

    The last is a function that returns {"train": list of str}, with "test" if there is a part of
    its own for testing. It raises UserError if the texts are unusable.

    Raises:
        UserError: there is nothing of that name.
    """
    path = Path(args.data)
    if args.data == "reviews":
        digest = hashlib.sha256(Path(reviews.__file__).read_bytes()).hexdigest()
        return "reviews", [digest, REVIEWS], lambda: {"train": reviews.reviews(REVIEWS)[0]}
    if args.data == "imdb":
        return "imdb", "stanfordnlp/imdb", imdb
    if os.path.isfile(path):  # Path.is_file() would raise an error for a name that is too long
        if path.suffix not in (*READERS, ".txt"):
            raise UserError(f"--data {path}: the name of a file must end in .txt, .csv or .jsonl")
        return path.stem, stamps([path]), lambda: {"train": from_files([path])}
    if not os.path.isdir(path):
        none = "this is no" if os.path.exists(path) else "there is no such"
        raise UserError(
            f"--data {shown(args.data)}: {none} file or folder; pass reviews, imdb, fake, a text,"
            " CSV or JSONL file, or a folder of them"
        )
    parts = {}
    for part in ("train", "test"):
        found = [path / (part + suffix) for suffix in (*READERS, ".txt")]
        parts[part] = [f for f in found if f.is_file()] or _files(path / part)
    if not (parts["train"] and parts["test"]):
        parts = {"train": _files(path)}
    if not parts["train"]:
        raise UserError(f"--data {path}: there is no .txt, .csv or .jsonl file in this folder")
    every = [file for files in parts.values() for file in files]
    return path.resolve().name, stamps(every), lambda: _read(parts)


def imdb():
    """Returns the reviews of IMDb: 75,000, of which 50,000 have no label, and 25,000.

    Source: Maas et al. 2011, https://aclanthology.org/P11-1015/, from the Hugging Face hub.

    Raises:
        UserError: they cannot be downloaded.
    """
    sets = downloaded_imdb()
    return {"train": [*sets["train"]["text"], *sets["unsupervised"]["text"]]} | {
        "test": list(sets["test"]["text"])
    }


def from_files(files):
    """Returns the texts of files: of a .txt file the whole, of others the column text.

    Raises:
        UserError: one of them is unusable, or they do not fit in this computer's memory.
    """
    found = []
    fits_memory(files[0] if len(files) == 1 else files[0].parent, files)
    for file in files:
        if file.suffix == ".txt":
            texts, where = [text(file)], [file]
        else:
            texts = [str(row["text"]) for row in rows(file, ("text",))]
            where = [f"{file}: row {i + 1}" for i in range(len(texts))]
        whole_characters(texts, where)
        found += texts
    return found


def _read(parts):
    return {part: from_files(files) for part, files in parts.items()}


def _files(folder):
    kinds = (*READERS, ".txt")
    return sorted(f for f in folder.rglob("*") if f.suffix in kinds and f.is_file())
