"""Names what pictures show by a fine-tuned model: python 10_offload/classify.py DIR PICTURE ..."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.cli import Parser
from shared.images import data, models


def classify(folder, paths):
    """Returns the most probable class of each picture and its probability, from 0 to 1.

    Args:
        folder: what --save wrote, pathlib.Path.
        paths: list of str.

    Raises:
        UserError: there is no such model, or a file is not a readable picture.
    """
    model, made = models.load(folder)
    found = []
    with torch.no_grad():
        for path in paths:
            probabilities = model(data.read([path], made)).softmax(-1)[0]  # (classes,)
            best = int(probabilities.argmax())
            found.append((made.classes[best], float(probabilities[best])))
    return found


def main(argv=None):
    parser = Parser(description=__doc__.split(":")[0] + ".")
    saved = "a model that a script of 01 to 10 has saved with --save DIR"
    parser.add_argument("folder", metavar="DIR", type=Path, help=saved)
    parser.add_argument("paths", metavar="PICTURE", nargs="+", help="what to classify")
    args = parser.parse_args(argv)
    for path, (label, probability) in zip(args.paths, classify(args.folder, args.paths)):
        print(f"{label} ({probability:.0%}): {path}")


if __name__ == "__main__":
    main()
