"""The shapes of known models: how many blocks they have, how wide they are, and so on."""

import torch
import torchvision
from transformers import AutoConfig

from shared.text.models import KNOWN, TINY, TINY_GPT

VITS = ("vit_l_16", "vit_b_16", "vit_b_32", "vit_l_32", "vit_h_14")
# What transformers calls a kind of language model, and what it is called here.
KINDS = {
    "llama": "Llama",
    "mistral": "Llama",
    "qwen3": "Qwen3",
    "bert": "BERT",
    "distilbert": "DistilBERT",
    "bloom": "BLOOM",
    "big_bird": "BigBird",
}
LEARNED_POSITIONS = ("BERT", "DistilBERT", "BigBird")


def vit(name):
    """Returns the shape of a vision transformer of torchvision at the size of its weights.

    Returns:
        a dictionary: its kind, and numbers as report/formulas.toml names them.
    """
    px = torchvision.models.get_model_weights(name).DEFAULT.meta["min_size"][0]
    with torch.device("meta"):
        model = torchvision.models.get_model(name, image_size=px)
    heads, tokens = model.encoder.layers[0].num_heads, (px // model.patch_size) ** 2 + 1
    return {
        "kind": "ViT",
        "layers": len(model.encoder.layers),
        "width": model.hidden_dim,
        "heads": heads,
        "kv_heads": heads,
        "head_width": model.hidden_dim // heads,
        "mlp": model.mlp_dim,
        "vocabulary": 0,
        "positions": tokens,
        "classes": 10,  # of CIFAR-10, which the scripts train with
        "tokens": tokens,
        "pixels": px,
        "patch": model.patch_size,
    }


def text(name):
    """Returns the shape of a language model, by its configuration, as vit() does."""
    config = AutoConfig.from_pretrained(KNOWN[name])
    kind, width, heads = KINDS[config.model_type], config.hidden_size, config.num_attention_heads
    mlp = getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", 4 * width)
    return {
        "kind": kind,
        "layers": config.num_hidden_layers,
        "width": width,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", heads),
        "head_width": getattr(config, "head_dim", None) or width // heads,
        "mlp": mlp,
        "vocabulary": config.vocab_size,
        "positions": config.max_position_embeddings if kind in LEARNED_POSITIONS else 0,
        "classes": 2,
        "tokens": 4096 if kind == "BigBird" else 512,
        "pixels": 0,
        "patch": 0,
    }


def known():
    """Returns the shapes of all models known here, {name: as vit() returns}."""
    texts = [name for name in KNOWN if name not in (TINY, TINY_GPT)]
    return {name: vit(name) for name in VITS} | {name: text(name) for name in texts}
