"""The command line of the scripts about images, and what is particular to them."""

import functools

from shared import cli
from shared.images import models
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
    model_help = "vit_tiny or one of torchvision's vit_*"
    data_help = "digits, cifar10, fake, or a folder of images"
    saved_help = "as 10_offload/classify.py reads it"
    use = "python 10_offload/classify.py {} PICTURE"  # of a saved model

    weights = staticmethod(models.weights)  # returns the file with the weights to start from
    model = staticmethod(models.vit)  # for args.num_classes classes, with random weights
    save = staticmethod(models.save)  # writes a whole state dict on the host into a new folder

    def add_options(self, parser):
        """Adds the options that only these scripts have: none."""

    def choose(self, args):
        """Fills in what depends on the model."""
        args.image_px = models.image_px(args.model)

    def settings(self, args):
        """Returns what a record says of the inputs' size."""
        return {"image_px": args.image_px}

    def outputs(self, model, images, labels):
        """Returns loss and logits of each example; None for what the metric does not use."""
        return None, model(images.to(next(model.parameters()).dtype))  # as Fabric does by itself


TASK = Images()
parse = functools.partial(cli.parse, TASK)
