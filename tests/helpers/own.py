"""Runs of a script that a test writes, and answers about it, as its user would ask for them."""

import json

from conftest import run


def predicted(text, folder, *options, code=0):
    """Ask why a script with this text, in a folder, needs its memory; return the output."""
    (folder / "mine.py").write_text(text)
    return run("-m", "emulated_gpu", "why", "mine.py", *options, code=code, cwd=folder)


def emulated(text, folder):
    """Run a script with this text, in a folder, on an emulated GPU; return the output."""
    (folder / "mine.py").write_text(text)
    return run("-m", "emulated_gpu", "mine.py", cwd=folder)


def answer(text, folder, *options):
    """Ask as predicted() does; return the output, and the record that --json writes."""
    file = folder / "why.json"
    printed = predicted(text, folder, "--json", file, *options)
    return printed, json.loads(file.read_text())
