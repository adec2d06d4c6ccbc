"""Classify images with a fine-tuned model: python 10_offload/classify.py DIR PICTURE ..."""

import json
import sys
import types
from pathlib import Path

import torch
from PIL.Image import Resampling
from safetensors.torch import load_file
from torchvision.transforms.v2.functional import pil_to_tensor

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import data, models
from shared.run import errors
from shared.run.cli import Parser
from shared.run.errors import UserError

SAVED = ("model", "image_px", "classes", "cropped")  # in config.json


def load(folder):
    """Return a model that --save has written, in fp32 on the CPU, and its configuration.

    The latter has the attributes model, image_px, classes (their names) and cropped (true if images
    are resized to more than image_px and then cropped to it).

    Raises:
        UserError: there is no such model.
    """
    if not (folder / "config.json").is_file():
        holds = f"{folder} holds no model"
        raise UserError(f"{holds}; pass a folder that a script of 01 to 10 has saved with --save")
    try:
        config = json.loads((folder / "config.json").read_text())
        made = types.SimpleNamespace(**{name: config[name] for name in SAVED})
        model = models.vit(made, made)
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except Exception as error:  # damaged files raise those of json, safetensors or PyTorch
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, KeyError):
            why = f"config.json has no {why}; 11_llm/classify.py reads models of texts"
        raise UserError(f"{folder} holds no usable model of images ({why})") from None
    return model.eval(), made


def read(paths, made):
    """Return images as model input, as in evaluations: (n, 3, image_px, image_px) in fp32.

    Args:
        paths: list of str.
        made: the configuration of the model, from load().

    Raises:
        UserError: a file is not a readable image.
    """
    images, px = [data.load(path) for path in paths], made.image_px
    if made.cropped:
        found = data.Pictures([(image, 0) for image in images], range(len(images)), px)
        return torch.stack([picture for picture, _ in found])
    images = [pil_to_tensor(image.resize((px, px), Resampling.BILINEAR)) for image in images]
    return data.NORMALIZE(torch.stack(images) / 255)


def classify(folder, paths):
    """Return the most probable class of each image and its probability, from 0 to 1.

    Args:
        folder: what --save wrote, pathlib.Path.
        paths: list of str.

    Raises:
        UserError: there is no such model, or a file is not a readable image.
    """
    model, made = load(folder)
    found = []
    with torch.no_grad():
        for path in paths:
            probabilities = model(read([path], made)).softmax(-1)[0]  # (classes,)
            best = int(probabilities.argmax())
            found.append((made.classes[best], float(probabilities[best])))
    return found


def main(argv=None):
    errors.install()
    parser = Parser(description=__doc__.split(":")[0] + ".")
    saved = "a model that a script of 01 to 10 has saved with --save DIR"
    parser.add_argument("folder", metavar="DIR", type=Path, help=saved)
    parser.add_argument("paths", metavar="PICTURE", nargs="+", help="what to classify")
    args = parser.parse_args(argv)
    for path, (label, probability) in zip(args.paths, classify(args.folder, args.paths)):
        print(f"{label} ({probability:.0%}): {path}")


if __name__ == "__main__":
    main()
