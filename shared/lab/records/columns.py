"""Tables by columns, each of which reads a row, such as a record; as text and in Markdown."""

import dataclasses
from collections.abc import Callable

from shared.lab.records import formats, markdown, reading


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table. The cell of a row without a value, None, is empty."""

    heading: str
    read: str | Callable  # keys or attributes, such as "train.host_peak_gb"; or a function of a row
    write: str | Callable = ""  # a format, such as ".2f"; or a function of a value

    def cell(self, row):
        """Return the value of a row as text, None if it has none."""
        value = self.read(row) if callable(self.read) else _at(row, self.read.split("."))
        if value is None:
            return None
        return self.write(value) if callable(self.write) else format(value, self.write)


SCRIPT = Column("script", reading.name)


def cells(columns, rows):
    """Return a table as rows of texts, without columns that have no value; the heading is first."""
    by_column = [(column.heading, [column.cell(row) for row in rows]) for column in columns]
    used = [(heading, *texts) for heading, texts in by_column if {*texts} != {None}]
    return [[text or "" for text in row] for row in zip(*used)]


def as_text(columns, rows):
    """Return a table as aligned lines of text for a terminal."""
    heading, *texts = cells(columns, rows)
    return formats.aligned(heading, texts)


def in_markdown(columns, rows):
    """Return a table as lines of Markdown."""
    return markdown.table(cells(columns, rows))


def _at(value, keys):
    for key in keys:
        value = value[key] if isinstance(value, dict) else getattr(value, key)
    return value
