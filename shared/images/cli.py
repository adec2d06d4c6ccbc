"""The command line of the scripts on images, and their task."""

import functools
import types

from shared.images import data, models
from shared.metrics import Accuracy
from shared.run import cli


class Images:
    """The task of image classification, for Meter and the commands; see also text.cli.Texts."""

    unit = "images"  # in a batch
    packages = ()  # that a measurement depends on, besides those of every script
    classes = 10  # in the data of the presets, for predictions
    input_size = "image_px"  # the option that the record holds
    learned, new_metric = "accuracy", Accuracy  # the metric: its name and its class
    presets = {
        "tiny": {"model": "vit_tiny", "data": "digits"},
        "full": {"model": "vit_l_16", "data": "cifar10"},
    }
    model_help = "vit_tiny or one of torchvision's vit_*"
    data_help = "digits, cifar10, fake, or a folder of images"
    saved_help = "as 10_offload/classify.py reads it"
    use = "python 10_offload/classify.py {} PICTURE"  # the command that uses a saved model

    add_options = staticmethod(lambda parser: None)  # no options for images alone
    weights = staticmethod(models.weights)  # returns the file of initial weights
    save = staticmethod(models.save)  # writes a full state dict on the host to a new folder

    def choose(self, args):
        """Set args.image_px, the image size of the model."""
        args.image_px = models.image_px(args.model)

    def prepare(self, args):
        """Download the data of a run with these options, and write the file of initial weights."""
        _, classes = data.image_sets(args)
        models.weights(args, types.SimpleNamespace(classes=classes))

    def outputs(self, model, images, labels):
        """Return None for the losses, which accuracy does not need, and the logits."""
        return None, model(images.to(next(model.parameters()).dtype))  # Fabric converts by itself


TASK = Images()
parse = functools.partial(cli.parse, TASK)
