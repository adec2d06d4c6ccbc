"""The shapes of known models, from shapes.csv: layers, widths, heads and so on.

Vision transformers are torchvision's, at the resolution of its weights, with the 10 classes of
CIFAR-10; the shapes of language models are from their configurations. Columns are named as in
report/formulas.toml.
"""

import csv
from pathlib import Path


def known():
    """Return {name of a model: {column: a number, or its kind}}."""
    with Path(__file__).with_name("shapes.csv").open(newline="") as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    return {
        name: {key: text if key == "kind" else int(text) for key, text in row.items()}
        for name, row in rows.items()
    }
