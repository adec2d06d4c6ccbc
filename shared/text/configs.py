"""Language models: their configurations and tokenizers, here or on the hub."""

import contextlib
import logging
import os

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertConfig,
    BigBirdConfig,
    BloomConfig,
    DistilBertConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
)

from shared.common.errors import UserError, shown

transformers.logging.set_verbosity_error()  # it warns of new heads, which are intended here
transformers.logging.disable_progress_bar()  # of loading; downloads have one of their own
# Without a network, the hub's client would report every attempt.
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

# These configurations are known here, so that memory can be predicted without a network. The
# figures are those of each model's config.json on the Hugging Face hub; what is not named is the
# default of its class in transformers.
LLAMA3_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}
MISTRAL_7B = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    "sliding_window": 4096,
}
BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
BLOOM_560M = {
    "vocab_size": 250880,
    "hidden_size": 1024,
    "n_layer": 24,
    "n_head": 16,
    "pad_token_id": 3,
}
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
    "meta-llama/Meta-Llama-3-8B": (LlamaConfig, LLAMA3_8B),
    "mistralai/Mistral-7B-v0.1": (MistralConfig, MISTRAL_7B),
    "distilbert-base-uncased": (DistilBertConfig, {}),
    "google-bert/bert-large-uncased": (BertConfig, BERT_LARGE),
    "google/bigbird-roberta-base": (BigBirdConfig, {}),
    "bigscience/bloom-560m": (BloomConfig, BLOOM_560M),
    "Qwen/Qwen3-0.6B": (Qwen3Config, QWEN3_600M),
}
# DistilBERT (https://arxiv.org/abs/1910.01108) at a sixth of its width and a third of its depth,
# with a vocabulary made from the training texts.
TINY = "distilbert_tiny"
TINY_OPTIONS = {"vocab_size": 8192, "dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 512}
# GPT-2 (https://github.com/openai/gpt-2), as small, for going on with texts.
TINY_GPT = "gpt_tiny"
TINY_GPT_OPTIONS = {"vocab_size": 4096, "n_embd": 128, "n_layer": 2, "n_head": 4}
TINY_GPT_OPTIONS |= {"n_positions": 512, "bos_token_id": 0, "eos_token_id": 0}
MADE_HERE = {TINY: (DistilBertConfig, TINY_OPTIONS), TINY_GPT: (GPT2Config, TINY_GPT_OPTIONS)}


def configuration(args):
    """Returns the transformers.PreTrainedConfig of args.model.

    No network is needed for a model in KNOWN whose weights are not wanted.

    Raises:
        UserError: there is no such model, it cannot be fetched, or it cannot do what args.task
            does.
    """
    if args.model in MADE_HERE or args.model in KNOWN and not args.pretrained:
        kind, options = (MADE_HERE | KNOWN)[args.model]
        config = kind(**options)
    else:
        with explained(args):
            config = AutoConfig.from_pretrained(
                args.model, trust_remote_code=args.trust_remote_code
            )
    auto, own_code = args.task.auto, getattr(config, "auto_map", {})
    if type(config) not in auto._model_mapping and auto.__name__ not in own_code:
        raise UserError(
            f"--model {args.model}: {config.model_type} models cannot {args.task.does}; choose"
            f" another, such as {args.task.such_as}"
        )
    config.dtype = None  # it is the type that the weights were saved in; the script chooses its own
    # The two are the same object, except in models that also take pictures.
    for part in (config, config.get_text_config()):
        # The cache holds keys and values of earlier tokens, for generating text. With activation
        # checkpointing, they would be kept twice.
        part.use_cache = False
        pad = getattr(part, "pad_token_id", None)  # one that takes pictures may have none itself
        part.pad_token_id = 0 if pad is None else pad  # until it is read from the tokenizer
    return config


@contextlib.contextmanager
def explained(args):
    """Turns what transformers raises while the context is active into a UserError of one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # If a file is damaged, safetensors, pickle and tokenizers raise errors of their own.
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if "trust_remote_code" in str(error):
            wrong = (
                "it comes with Python code of its own; if you trust that, pass --trust-remote-code"
            )
        elif os.path.isfile(args.model):
            wrong = "this is a file; pass the folder that it is in, if save_pretrained() wrote that"
        elif os.path.isdir(args.model):
            wrong = (
                f"this folder holds no usable model ({why}); it must be one that save_pretrained()"
                " wrote"
            )
        elif isinstance(error, OSError):
            fake = ", or --no-pretrained --data fake, which needs no weights"
            offline = fake if args.model in KNOWN else ""
            wrong = (
                "there is no such folder, and the Hugging Face hub does not have it or cannot be"
                f" reached; pass a model's folder, or {args.task.tiny}{offline}"
            )
        else:
            wrong = f"transformers cannot load it ({why})"
        raise UserError(f"--model {shown(args.model)}: {wrong}") from None


def tokenizer(args):
    """Returns the tokenizer of args.model, which must be a pretrained model.

    Raises:
        UserError: it cannot be fetched.
    """
    with explained(args):
        found = AutoTokenizer.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
    if len(found) <= len(found.all_special_ids):
        raise UserError(
            f"--model {args.model}: there is no tokenizer beside the weights, or an empty one; it"
            " must be one that save_pretrained() wrote"
        )
    if found.pad_token is None:
        # Some models, such as Llama, were trained without padding. The attention mask hides it.
        found.pad_token = found.eos_token
    return found


def longest(args):
    """Returns how many tokens args.config allows, None if it sets no limit.

    Raises:
        UserError: there is no such model.
    """
    positions = getattr(args.config.get_text_config(), "max_position_embeddings", None)
    if not positions or positions < 0:  # BLOOM and T5 have no limit; XLNet has -1
        return None
    with torch.device("meta"), explained(args):
        model = args.task.auto.from_config(args.config, trust_remote_code=args.trust_remote_code)
    tables = [m for name, m in model.named_modules() if name.endswith("position_embeddings")]
    # RoBERTa and similar models count positions from padding_idx + 1 on.
    found = (getattr(table, "padding_idx", None) for table in tables)
    return positions - max((n + 1 for n in found if n is not None), default=0)
