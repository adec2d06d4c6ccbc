"""Vision transformers, and their weights in one file on disk, the same for every stage."""

import errno
import hashlib
import json
import os
import types
from functools import partial
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torchvision.models.vision_transformer import VisionTransformer

from shared.common.errors import UserError, shown
from shared.common.files import OFFLINE, cache_folder, written_once
from shared.common.mapping import mappable
from shared.common.weights import wrong

# Made by shared/evidence/pretrain.py.
TINY_WEIGHTS = Path(__file__).parent / "weights" / "vit_tiny.pt"
TINY_PX = 32


def names():
    """Returns the models there are."""
    return ["vit_tiny", *torchvision.models.list_models(include="vit_*")]


def image_px(name):
    """Returns the edge, in pixels, of the pictures that a model was pretrained on.

    Raises:
        UserError: there is no such model.
    """
    if name not in names():
        raise UserError(
            f"--model {shown(name)}: there is no such model; choose from {', '.join(names())}"
        )
    if name == "vit_tiny":
        return TINY_PX
    return torchvision.models.get_model_weights(name).DEFAULT.meta["min_size"][0]


def fits_patches(name, px):
    """Makes sure that a model can cut pictures of this edge, in pixels, into its patches.

    Raises:
        UserError: it cannot.
    """
    patch = 4 if name == "vit_tiny" else int(name.rpartition("_")[2])
    if px % patch:
        raise UserError(
            f"--image-px {px}: {name} cuts pictures into patches of {patch} px; choose a multiple"
            " of it"
        )


def vit(args):
    """Builds `args.model` for `args.num_classes` classes, with random weights.

    Input: (batch, 3, args.image_px, args.image_px); output: logits, (batch, classes). The
    transformer blocks are `model.encoder.layers`. Architecture: Dosovitskiy et al. 2021,
    https://arxiv.org/abs/2010.11929; the last layer starts at zero, as there for fine-tuning.
    """
    options = {"image_size": args.image_px, "num_classes": args.num_classes}
    if args.model == "vit_tiny":
        return VisionTransformer(
            patch_size=4, num_layers=4, num_heads=4, hidden_dim=96, mlp_dim=384, **options
        )
    return torchvision.models.get_model(args.model, **options)


def checkpoint(args):
    """Returns the path of the file with the weights that every stage starts from.

    The state dict is in fp32, with a new last layer for `args.num_classes` classes. The file is
    written when it is first needed, and again if it is damaged: from pretrained weights, or from
    random ones that depend on `args.seed` alone. A simulation has a file of its own,
    `args.checkpoint_file`.

    Raises:
        UserError: the weights cannot be downloaded, are damaged, or cannot be written.
    """
    if args.checkpoint_file:
        return args.checkpoint_file
    source = "pretrained" if args.pretrained else f"random-seed{args.seed}"
    path = cache_folder() / f"{args.model}-{args.image_px}px-{args.num_classes}classes-{source}.pt"
    if args.pretrained and args.model == "vit_tiny":  # new weights, new file
        try:
            path = path.with_stem(f"{path.stem}-{_sha256(TINY_WEIGHTS)[:8]}")
        except OSError as error:
            raise _tiny_damaged(f"cannot be read ({error.strerror})") from None
    written_once(path, lambda: _state_dict(args), partial(wrong, build=lambda: vit(args)))
    return mappable(path)


def _state_dict(args):
    pretrained = {}
    if args.pretrained:  # first, so that a missing file is said before a model is built
        pretrained = (
            _tiny_weights(args) if args.model == "vit_tiny" else _imagenet_weights(args.model)
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # of the GPUs, none is touched
        torch.manual_seed(args.seed)
        state = vit(args).state_dict()
    if not pretrained:
        return state
    head = {name: value for name, value in state.items() if name.startswith("heads.")}
    return {**pretrained, **head}


def _tiny_weights(args):
    if why := wrong(TINY_WEIGHTS, lambda: vit(args), but=["heads."]):
        raise _tiny_damaged(why)
    return torch.load(TINY_WEIGHTS, weights_only=True)


def _tiny_damaged(why):
    return UserError(
        f"{TINY_WEIGHTS} {why}; get it again with git checkout, or make it again with python -m"
        " shared.evidence.pretrain"
    )


def _imagenet_weights(name):
    weights = torchvision.models.get_model_weights(name).DEFAULT
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    # torch.hub checks the hash of what it downloads, but not of a file that is already there. The
    # file's name ends in the first 8 digits of its hash.
    if os.path.exists(file):
        try:
            digest = _sha256(file)
        except OSError as error:
            raise UserError(
                f"{file} cannot be read ({error.strerror}); delete it to download it again"
            ) from None
        if not digest.startswith(file.stem.rsplit("-", 1)[-1]):
            raise UserError(
                f"{file} is damaged (its checksum is wrong); delete it to download it again"
            )
    try:
        return weights.get_state_dict(
            progress=True, check_hash=True, map_location="cpu", weights_only=True
        )
    except OFFLINE as error:
        raise UserError(
            f"the weights of {name} could not be downloaded ({getattr(error, 'reason', error)});"
            f" pass --no-pretrained, or put {weights.url} into {file.parent}"
        ) from None
    except RuntimeError as error:
        if "hash" not in str(error):
            raise
        raise UserError(
            f"the download of {weights.url} was damaged (its checksum is wrong); try again"
        ) from None


def _sha256(file):
    if not os.path.isfile(file):  # opening a named pipe would wait
        raise FileNotFoundError(errno.ENOENT, "there is no such file")
    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def save(args, state, folder):
    """Writes a trained model into a folder: config.json and model.safetensors, for load().

    Args:
        args: the options.
        state: its state dict, whole, on the host.
        folder: pathlib.Path.

    Raises:
        OSError: it cannot be written.
    """
    config = {name: getattr(args, name) for name in ("model", "image_px", "classes", "cropped")}
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def load(folder):
    """Returns a model that save() has written, in fp32 on the CPU, and what it was made with.

    The latter has the attributes model, image_px, num_classes, classes (their names) and cropped
    (whether pictures are larger before they are cropped to image_px).

    Raises:
        UserError: there is no such model.
    """
    try:
        args = types.SimpleNamespace(**json.loads((folder / "config.json").read_text()))
        args.num_classes = len(args.classes)
        model = vit(args)
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except FileNotFoundError:
        raise UserError(
            f"{folder} holds no model; pass a folder that a script has written with --save"
        ) from None
    except Exception as error:  # of json, of safetensors, of torchvision: a damaged file has many
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{folder} holds no usable model of images ({why})") from None
    return model.eval(), args
