"""Any model of Hugging Face's AutoModelForCausalLM, with its weights in one file.

What is not special about going on with texts is in shared/text/models.py.
"""

import re

from shared.common.errors import UserError
from shared.text.models import blocks, built, checkpoint

__all__ = ["blocks", "checkpoint", "head", "language_model"]

# What configurations call it when logits are scaled or limited after the head.
AFTERWARDS = re.compile(r"logits?_(scal|soft_?cap)|(output|lm_head)_multiplier")


def language_model(args):
    """Builds `args.model`, with random weights.

    Input: input_ids, (batch, tokens), int64; output: an object with logits, (batch, tokens,
    vocabulary), for the token after each.

    Raises:
        UserError: transformers cannot build it.
    """
    return built(args)


def head(model):
    """Returns the layer that makes the logits of a model's last hidden states.

    Raises:
        UserError: the model does more than that with them.
    """
    model = getattr(model, "module", model)  # out of Fabric's wrapper
    found, config = model.get_output_embeddings(), model.config.get_text_config().to_dict()
    further = [
        name for name, part in model.named_children() if part not in (model.base_model, found)
    ]
    further += [name for name, value in config.items() if AFTERWARDS.search(name) and value]
    if found is None or further:
        raise UserError(
            f"the logits of {type(model).__name__} are not those of a single layer"
            f" ({', '.join(further) or 'it has none'}), so they cannot be made in parts;"
            " 11_llm/causal.py makes all at once"
        )
    return found
