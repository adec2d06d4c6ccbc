"""Run a program of this folder, and print the bytes that it returns.

    python -m emulated_gpu run.py FILE.FUNCTION [VALUE...] [NAME=VALUE...]

Values are JSON, and texts without quotes.
"""

import importlib
import json
import sys


def value(text):
    """Return a number or a truth value from its text, and other texts as they are."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(name, *words):
    module, _, function = name.partition(".")
    program = getattr(importlib.import_module(f"proof.programs.{module}"), function)
    values = [value(word) for word in words if "=" not in word]
    named = [word.partition("=") for word in words if "=" in word]
    figures = program(*values, **{key: value(text) for key, _, text in named})
    if not isinstance(figures, dict):
        figures = {} if figures is None else {"": figures}
    for key, size in figures.items():
        print(f"figure {key}: {size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
