"""What the stages about pictures have in common, for the modules that serve text as well; shared/text.py is its twin."""

from pathlib import Path

import torch

from shared import data, models

UNIT = "images"
PACKAGES = ()  # that a measurement depends on, besides figures.PACKAGES
PRESETS = {"tiny": {"model": "vit_tiny", "data": "digits"}, "full": {"model": "vit_l_16", "data": "cifar10"}}
CLASSES = 10  # of the presets' data, for predictions
WITHOUT_BF16 = "02_mixed_precision uses fp16"
MODEL_HELP = "vit_tiny or one of torchvision's vit_*"
DATA_HELP = "digits, cifar10, fake, or a folder of images"


def knows(model):
    """Tells whether a model's name is meant for a vision transformer."""
    return model.startswith("vit_")


def suits(what):
    """Tells whether --data can be meant for pictures: a name, or a folder that holds no texts and no tables."""
    path = Path(what)
    texts = (file for pattern in ("*.csv", "*.jsonl", "*/*.txt", "train/*/*.txt") for file in path.glob(pattern))
    return what not in ("reviews", "imdb") and not path.is_file() and next(texts, None) is None


def add_options(parser, alone):
    """Adds the options that only these stages have: none."""


def choose(args):
    """Fills in what depends on the model: image size and learning rates.

    Raises:
        UserError: there is no such model.
    """
    args.image_px = models.image_px(args.model)
    # The small model wants larger steps; 5e-5 and 0.01 are the ones of the published ladder.
    args.adam_lr, args.sgd_lr = (6e-4, 0.05) if args.model == "vit_tiny" else (5e-5, 0.01)


def settings(args):
    """Returns what a record says of the inputs' size."""
    return {"image_px": args.image_px}


def passed_on(args):
    """Returns the options of add_options() that a stage gets from the ladder."""
    return []


def prepare(args):
    """Makes what a training needs: data, and weights on disk. Fills in args.num_classes and args.dataset.

    Raises:
        UserError: one of them is missing, unusable, or cannot be downloaded.
    """
    _, args.num_classes, args.dataset = data.image_sets(args)
    models.checkpoint(args)


def checkpoint(args):
    """Returns the path of the file with the weights to start from; see models.checkpoint."""
    return models.checkpoint(args)


def classifier(args):
    """Returns the model, with random weights; see models.vit."""
    return models.vit(args)


def logits(model, images):
    """Returns what a model says of a batch: (batch, classes)."""
    return model(images.to(next(model.parameters()).dtype))  # which Fabric would do by itself


def fake_batch(args, n, update, device):
    """Returns a batch of n pictures and labels without contents, for simulations."""
    images = torch.empty(n, 3, args.image_px, args.image_px, device=device)
    return images, torch.empty(n, dtype=torch.long, device=device)
