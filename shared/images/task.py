"""What is particular to the stages about images; shared/text/task.py does the same for texts."""

import torch

from shared.common.files import holds_texts
from shared.common.task import Task
from shared.images import data, models


class Images(Task):
    unit = "images"
    packages = ()
    presets = {
        "tiny": {"model": "vit_tiny", "data": "digits"},
        "full": {"model": "vit_l_16", "data": "cifar10"},
    }
    classes = 10
    without_bf16 = "02_mixed_precision uses fp16"
    model_help = "vit_tiny or one of torchvision's vit_*"
    data_help = "digits, cifar10, fake, or a folder of images"

    saved_help = "as 10_offload/classify.py reads it"

    def knows(self, model):
        return model.startswith("vit_")

    def suits(self, data):
        return data not in ("reviews", "imdb") and not holds_texts(data)

    def choose(self, args):
        args.image_px = models.image_px(args.model)
        # The learning rates in the scripts suit the large pretrained models. The tiny model is
        # trained for one epoch of 21 to 82 updates, and needs larger steps. There are two factors,
        # because Adam's rate is nearly the size of a step and SGD's multiplies the gradient.
        tiny = args.model == "vit_tiny"
        args.adam_lr_factor, args.sgd_lr_factor = (12, 5) if tiny else (1, 1)

    def settings(self, args):
        return {"image_px": args.image_px}

    def prepare(self, args):
        _, classes, args.dataset = data.image_sets(args)
        args.num_classes = len(classes)
        models.checkpoint(args)

    def checkpoint(self, args):
        return models.checkpoint(args)

    def model(self, args):
        return models.vit(args)

    def outputs(self, model, images, labels):
        return model(images.to(next(model.parameters()).dtype))  # as Fabric does by itself

    def save(self, args, state, folder):
        models.save(args, state, folder)

    def use_of(self, folder):
        return f"python 10_offload/classify.py {folder} PICTURE"

    def fake_batch(self, args, n, update, device):
        images = torch.empty(n, 3, args.image_px, args.image_px, device=device)
        return images, torch.empty(n, dtype=torch.long, device=device)


TASK = Images()
