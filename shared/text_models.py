"""Language models that can classify: configuration, weights in one file on disk, tokenizer.

The twin of shared/models.py, for any model of Hugging Face's AutoModelForSequenceClassification.
"""

import contextlib
import hashlib
import json
import logging
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BigBirdConfig, BloomConfig, DistilBertConfig, Qwen3Config

from shared import UserError, models
from shared.text_sources import stamps

transformers.logging.set_verbosity_error()  # it warns of fresh heads, which are meant here
transformers.logging.disable_progress_bar()  # of loading; downloads have one of their own
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # without a network it tells of every attempt

# Configurations known here, so that memory can be predicted without a network: the figures of the config.json that each
# id has on the Hugging Face hub; what is not named is the default of its class in transformers.
BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
BLOOM_560M = {"vocab_size": 250880, "hidden_size": 1024, "n_layer": 24, "n_head": 16, "pad_token_id": 3}
QWEN3_600M = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "tie_word_embeddings": True,
    "pad_token_id": 151643,
}
KNOWN = {
    "distilbert-base-uncased": (DistilBertConfig, {}),
    "google-bert/bert-large-uncased": (BertConfig, BERT_LARGE),
    "google/bigbird-roberta-base": (BigBirdConfig, {}),
    "bigscience/bloom-560m": (BloomConfig, BLOOM_560M),
    "Qwen/Qwen3-0.6B": (Qwen3Config, QWEN3_600M),
}
# DistilBERT (https://arxiv.org/abs/1910.01108) at a sixth of its width and a third of its depth, with a vocabulary made from the training texts.
TINY = "distilbert_tiny"
TINY_OPTIONS = {"vocab_size": 8192, "dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 512}


def configuration(args):
    """Returns the transformers.PreTrainedConfig of args.model: without a network if it is known here and its weights are
    not wanted.

    Raises:
        UserError: there is no such model, it cannot be fetched, or it has no head to classify with.
    """
    if args.model == TINY:
        config = DistilBertConfig(**TINY_OPTIONS)
    elif args.model in KNOWN and not args.pretrained:
        kind, options = KNOWN[args.model]
        config = kind(**options)
    else:
        with explained(args):
            config = AutoConfig.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
    if type(config) not in AutoModelForSequenceClassification._model_mapping and "AutoModelForSequenceClassification" not in getattr(config, "auto_map", {}):
        raise UserError(f"--model {args.model}: {config.model_type} models have no head to classify text with; choose another, such as bert-base-uncased")
    config.dtype = None  # what the weights were saved in; the script chooses its own
    for part in (config, config.get_text_config()):  # one and the same, except in models that know pictures too
        part.use_cache = False  # keys and values of earlier tokens, to generate with; checkpointing would keep them twice
        part.pad_token_id = 0 if part.pad_token_id is None else part.pad_token_id  # until the tokenizer tells
    return config


@contextlib.contextmanager
def explained(args):
    """Turns what transformers raises while the context is active into one line, a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # also those of safetensors, pickle and tokenizers, when a file is damaged
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if "trust_remote_code" in str(error):
            wrong = "it comes with Python code of its own; if you trust that, pass --trust-remote-code"
        elif Path(args.model).is_dir():
            wrong = f"this folder holds no usable model ({why}); it must be one that save_pretrained() wrote"
        elif isinstance(error, OSError):
            offline = ", or --no-pretrained --data fake, which needs no weights" if args.model in KNOWN else ""
            wrong = f"there is no such folder, and the Hugging Face hub does not have it or cannot be reached; pass a model's folder, or {TINY}{offline}"
        else:
            wrong = f"transformers cannot load it ({why})"
        raise UserError(f"--model {args.model}: {wrong}") from None


def tokenizer(args):
    """Returns the tokenizer of args.model, which must be a pretrained one's.

    Raises:
        UserError: it cannot be fetched.
    """
    with explained(args):
        found = AutoTokenizer.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
    if len(found) <= len(found.all_special_ids):
        raise UserError(f"--model {args.model}: there is no tokenizer beside the weights, or an empty one; it must be one that save_pretrained() wrote")
    if found.pad_token is None:  # as with Llama, which was never trained with padding; the attention mask hides it
        found.pad_token = found.eos_token
    return found


def longest(args):
    """Returns how many tokens args.config allows, None if it sets no limit.

    Raises:
        UserError: there is no such model.
    """
    positions = getattr(args.config.get_text_config(), "max_position_embeddings", None)
    if not positions or positions < 0:  # BLOOM and T5 know no limit; XLNet says -1
        return None
    args.num_classes = 2
    with torch.device("meta"):
        tables = [m for name, m in classifier(args).named_modules() if name.endswith("position_embeddings")]
    # RoBERTa and its kin begin to count after the place of padding.
    return positions - max((m.padding_idx + 1 for m in tables if getattr(m, "padding_idx", None) is not None), default=0)


def classifier(args):
    """Builds `args.model` for `args.num_classes` classes, with random weights.

    Input: input_ids and attention_mask, both (batch, tokens), int64; output: an object with logits, (batch, classes).

    Raises:
        UserError: transformers cannot.
    """
    args.config.num_labels = args.num_classes
    with explained(args):
        return AutoModelForSequenceClassification.from_config(args.config, trust_remote_code=args.trust_remote_code)


def checkpoint(args):
    """Returns the path of the file with the weights that both scripts start from: a state dict in fp32.

    It is written when first asked for: from pretrained weights, with a fresh head if they have none for
    `args.num_classes` classes; or from random ones. What is random depends on `args.seed` alone.

    Raises:
        UserError: the weights cannot be downloaded, are damaged, or cannot be written.
    """
    args.config.num_labels = args.num_classes
    source = [args.config.to_json_string(), getattr(args.config, "_commit_hash", None), args.pretrained, args.seed]
    folder = Path(args.model)
    source.append(stamps(folder.glob("*")))  # another model may have been saved there since
    name = folder.resolve().name if folder.is_dir() else args.model.replace("/", "--")
    digest = hashlib.sha256(json.dumps(source).encode()).hexdigest()[:16]
    return models.written_once(models.cache_folder() / f"{name}-{digest}.pt", lambda: _state_dict(args))


def _state_dict(args):
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(args.seed)
        if not args.pretrained:
            return classifier(args).state_dict()
        with explained(args):
            model = AutoModelForSequenceClassification.from_pretrained(
                args.model,
                config=args.config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # a head for other classes gives way to a fresh one
                trust_remote_code=args.trust_remote_code,
            )
        return model.state_dict()
