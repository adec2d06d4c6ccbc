"""Texts that the commands print: sizes, columns, errors of one line."""

import argparse

KINDS = ("allocated", "active", "reserved")  # peaks of a process


class UserError(ValueError):
    """An error that the user can correct, with a message of one line that says how."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage before it."""

    def error(self, message):
        self.exit(2, f"\nemulated-gpu: {message} (see --help)\n")


def size(gb):
    """Return a size in GB (1e9 bytes) as a text: in GB if it is 1 or more, else in MB."""
    return f"{gb:.2f} GB" if gb >= 1 else f"{gb * 1e3:.1f} MB"


def amount(nbytes):
    """Return bytes as a text, in GB or MB."""
    return size(nbytes / 1e9)


def columns(rows):
    """Return rows of texts as lines, whose columns are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(text.rjust(w) for text, w in zip(row, widths)) for row in rows]
