"""The command line of the scripts about images, and what is particular to them."""

import functools

import torch

from shared import cli
from shared.images import data, models
from shared.metrics import Accuracy


class Images:
    """What Meter and the commands must know about scripts on images; as text.cli.Texts."""

    unit = "images"  # that a batch consists of
    packages = ()  # that a measurement depends on, besides those of every script
    classes = 10  # of the presets' data, for predictions
    learned, new_metric = "accuracy", Accuracy  # how it is judged what a model has learned
    presets = {
        "tiny": {"model": "vit_tiny", "data": "digits"},
        "full": {"model": "vit_l_16", "data": "cifar10"},
    }
    without_bf16 = "02_mixed_precision uses fp16"
    model_help = "vit_tiny or one of torchvision's vit_*"
    data_help = "digits, cifar10, fake, or a folder of images"
    saved_help = "as 10_offload/classify.py reads it"

    def knows(self, model):
        """Tells whether a model's name can be meant for these scripts."""
        return model.startswith("vit_")

    def suits(self, what):
        """Tells whether --data can be meant for these scripts."""
        return what in ("digits", "cifar10", "fake") or data.is_folder(what)

    def add_options(self, parser):
        """Adds the options that only these scripts have: none."""

    def passed_on(self, args):
        """Returns those options, as a script gets them from the ladder."""
        return []

    def choose(self, args):
        """Fills in what depends on the model."""
        args.image_px = models.image_px(args.model)

    def settings(self, args):
        """Returns what a record says of the inputs' size."""
        return {"image_px": args.image_px}

    def prepare(self, args):
        """Makes what a training needs, data and weights on disk; fills in args.num_classes."""
        data.image_sets(args)
        models.weights(args)

    weights = staticmethod(models.weights)  # returns the file with the weights to start from
    model = staticmethod(models.vit)  # for args.num_classes classes, with random weights
    save = staticmethod(models.save)  # writes a whole state dict on the host into a new folder

    def outputs(self, model, images, labels):
        """Returns loss and logits of each example; None for what the metric does not use."""
        return None, model(images.to(next(model.parameters()).dtype))  # as Fabric does by itself

    def whole(self, model, state):
        """Returns a trained model's whole state dict, as save() takes it."""
        return state

    def use_of(self, folder):
        """Returns a command that uses a saved model."""
        return f"python 10_offload/classify.py {folder} PICTURE"

    def fake_batch(self, args, n, update, device):
        """Returns n inputs and n labels, uninitialised, for simulations."""
        images = torch.empty(n, 3, args.image_px, args.image_px, device=device)
        return images, torch.empty(n, dtype=torch.long, device=device)


TASK = Images()
parse = functools.partial(cli.parse, TASK)
