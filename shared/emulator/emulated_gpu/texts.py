"""Texts that the commands print: sizes, columns, errors of one line."""

import argparse

KINDS = ("allocated", "active", "reserved")  # peaks of a process


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage before it."""

    def error(self, message):
        self.exit(2, f"\nemulated-gpu: {message} (see --help)\n")


def amount(size):
    """Return bytes as a text, in GB or MB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def columns(rows):
    """Return rows of texts as lines, whose columns are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(text.rjust(w) for text, w in zip(row, widths)) for row in rows]
