"""The shapes of known models, in shapes.csv: how many blocks they have, how wide they are.

Those of vision transformers are torchvision's at the size of its weights, with the 10 classes of
CIFAR-10; those of language models are from their configurations. The columns are named as in
report/formulas.toml.
"""

import csv
from pathlib import Path


def known():
    """Returns {name of a model: {column: its kind, or a number}}."""
    with Path(__file__).with_name("shapes.csv").open(newline="") as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    return {
        name: {key: text if key == "kind" else int(text) for key, text in row.items()}
        for name, row in rows.items()
    }
