"""Predictions of a script that a test writes, as its user would run them."""

import json

from conftest import run


def predicted(text, folder, *options, code=0):
    """Predict a script with this text, in a folder; return the output."""
    (folder / "mine.py").write_text(text)
    return run("-m", "shared", "predict", folder / "mine.py", *options, code=code, cwd=folder)


def read_json_text(said):
    """Return the records in an output with --json, whatever else the script has printed."""
    return json.JSONDecoder().raw_decode(said[said.index("[\n {") :])[0]
