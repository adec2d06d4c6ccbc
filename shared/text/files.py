"""Files of texts: read whole, or one line says why they cannot be."""

import json
import os

import pandas
import psutil

from shared.common.errors import UserError
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
