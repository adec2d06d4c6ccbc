"""Vision transformers, and the file of weights that every stage starts from."""

import hashlib
import json
from pathlib import Path

import torch
import torchvision
from safetensors.torch import save_file
from torchvision.models.vision_transformer import VisionTransformer

from shared.run.errors import UserError
from shared.run.loading import NO_NETWORK, made_once

# Made by shared/lab/evidence/pretrain.py.
TINY_WEIGHTS = Path(__file__).parent / "weights" / "vit_tiny.pt"


def image_px(name):
    """Return the edge, in pixels, of the images that a model was pretrained on."""
    names = ["vit_tiny", *torchvision.models.list_models(include="vit_*")]
    if name not in names:
        raise UserError(f"--model {name}: there is no such model; choose from {', '.join(names)}")
    if name == "vit_tiny":
        return 32
    return torchvision.models.get_model_weights(name).DEFAULT.meta["min_size"][0]


def vit(args, loaders):
    """Build `args.model` for the classes of the loaders' images, with random weights.

    Input: (batch, 3, args.image_px, args.image_px); output: (batch, classes). Dosovitskiy et
    al. 2021, https://arxiv.org/abs/2010.11929; the last layer starts at 0 as in their fine-tuning.
    """
    options = {"image_size": args.image_px, "num_classes": len(loaders.classes)}
    if args.model == "vit_tiny":
        return VisionTransformer(
            patch_size=4, num_layers=4, num_heads=4, hidden_dim=96, mlp_dim=384, **options
        )
    return torchvision.models.get_model(args.model, **options)


def weights(args, loaders):
    """Return the file of weights that every stage starts from, in fp32.

    Write it when it is first needed: pretrained weights with a new last layer for these classes,
    or random ones, which depend on `args.seed` alone.
    """
    source = "pretrained" if args.pretrained else f"random-seed{args.seed}"
    if args.pretrained and args.model == "vit_tiny":  # new weights, new file
        source += f"-{hashlib.sha256(TINY_WEIGHTS.read_bytes()).hexdigest()[:8]}"
    name = f"{args.model}-{args.image_px}px-{len(loaders.classes)}classes-{source}.pt"
    return made_once(name, lambda part: torch.save(_state_dict(args, loaders), part))


def _state_dict(args, loaders):
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # leaves GPUs alone
        torch.manual_seed(args.seed)
        state = vit(args, loaders).state_dict()
    if not args.pretrained:
        return state
    if args.model == "vit_tiny":
        pretrained = torch.load(TINY_WEIGHTS, weights_only=True)
    else:
        published = torchvision.models.get_model_weights(args.model).DEFAULT
        try:
            pretrained = published.get_state_dict(check_hash=True, map_location="cpu")
        except NO_NETWORK as error:
            there = f"put {published.url} into {torch.hub.get_dir()}/checkpoints"
            failed = f"the weights of {args.model} could not be downloaded ({error})"
            raise UserError(f"{failed}; pass --no-pretrained, or {there}") from None
    return {**pretrained, **{n: t for n, t in state.items() if n.startswith("heads.")}}


def save(args, loaders, model, state, folder):
    """Write a trained model to a folder, as config.json and model.safetensors, for classify.py."""
    config = {"model": args.model, "image_px": args.image_px}
    config |= {"classes": loaders.classes, "cropped": loaders.cropped}
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
