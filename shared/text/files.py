"""Files of texts: read whole, or one line says why they cannot be."""

import contextlib
import json
import os

import pandas
import psutil

from shared.common.errors import UserError, shown
from shared.records.units import size


def text(file):
    """Returns the contents of a text file.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    try:
        if not os.path.isfile(file):  # opening a named pipe would wait
            kind = "is no file" if os.path.exists(file) else "is a link that leads nowhere"
            raise UserError(f"{file} {kind}; mend or remove it")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text; convert or remove it") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); mend or remove it") from None


def fits_memory(what, files):
    """Makes sure that all texts together fit in this computer's memory, where they are read to.

    Raises:
        UserError: they do not.
    """
    nbytes = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    free = psutil.virtual_memory().available
    if nbytes > free / 4:  # read, split and tokenized, they take a multiple of that
        raise UserError(
            f"--data {what}: {size(nbytes / 1e9)} of text are too many for this computer, which has"
            f" {size(free / 1e9)} of memory free; pass fewer texts"
        )


def _csv(file):
    # Nothing is converted: "NA" may be a text, and "1" the name of a class.
    table = pandas.read_csv(file, dtype=str, keep_default_na=False)
    if not isinstance(table.index, pandas.RangeIndex):
        raise ValueError(
            "rows have more cells than the heading; texts with a comma must be in quotes"
        )
    return list(table.columns), table.to_dict("records")


def _jsonl(file):
    lines = file.read_text(encoding="utf-8-sig").split("\n")
    rows = [json.loads(line) for line in lines if line.strip()]
    if not rows:
        raise ValueError("no rows")
    return list(dict.fromkeys(name for row in rows for name in row.keys())), rows


READERS = {".csv": _csv, ".jsonl": _jsonl}


def rows(file, wanted):
    """Returns the rows of a CSV or JSONL file that has the wanted columns, as dictionaries.

    Raises:
        UserError: it has no such columns, no rows, or rows without one of them.
    """
    columns_wanted = f"column{'s' * (len(wanted) > 1)}"
    names = " and ".join(wanted)
    try:
        columns, found = READERS[file.suffix](file)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        # The errors of pandas and json are ValueErrors; json follows lists in lists only so far.
        why = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error)])[0]
        why = f"cannot be read ({shown(why)})"
        with contextlib.suppress(OSError):
            why = why if file.read_bytes().strip() else "the file is empty"
        raise UserError(
            f"--data {file}: {why}; it must be {file.suffix[1:].upper()} with the {columns_wanted}"
            f" {names}"
        ) from None
    for column in wanted:
        if column not in columns:
            raise UserError(
                f"--data {file}: there is no column {column}, only"
                f" {shown(', '.join(map(str, columns))) or 'nothing'}; the"
                f" {columns_wanted} must be called {names}"
            )
    for i, row in enumerate(found, 1):
        for column in wanted:
            if row.get(column) is None or not str(row[column]).strip():
                raise UserError(f"--data {file}: row {i} has no {column}; mend or remove it")
    return found


def whole_characters(texts, where):
    """Makes sure that texts can be written as UTF-8.

    Args:
        texts: list of str.
        where: for each text what to call it.

    Raises:
        UserError: one holds half of a character.
    """
    for name, value in zip(where, texts):
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise UserError(
                f"{shown(str(name))} has half of a surrogate pair in it, which is no character;"
                " mend or remove it"
            )
