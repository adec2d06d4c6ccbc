"""Any model of Hugging Face's AutoModelFor... classes, with its weights in one file.

What is here also serves to shard it, checkpoint it, load it without a second copy, and save it.
"""

import contextlib
import hashlib
import json
import logging
import os
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

from shared.cli import UserError
from shared.loading import made_once

transformers.logging.set_verbosity_error()  # it warns of new heads, which are intended here
transformers.logging.disable_progress_bar()  # of loading; downloads have one of their own
# Without a network, the hub's client would report every attempt.
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

# Folders with a config.json each, so that memory can be predicted without a network. They say what
# the models' config.json on the Hugging Face hub says; the rest is the default of their class.
CONFIGS = Path(__file__).parent / "configs"
# DistilBERT (https://arxiv.org/abs/1910.01108) at a sixth of its width and a third of its depth,
# and GPT-2 (https://github.com/openai/gpt-2), as small, for going on with texts.
TINY, TINY_GPT = "distilbert_tiny", "gpt_tiny"
KNOWN = {f.name.replace("--", "/"): f for f in sorted(CONFIGS.iterdir())}


def configuration(args):
    """Returns the transformers.PreTrainedConfig of args.model."""
    here = None if args.pretrained else KNOWN.get(args.model)  # then no network is needed
    with explained(args):
        config = AutoConfig.from_pretrained(
            here or args.model, trust_remote_code=args.trust_remote_code
        )
    args.notes += [f"Python code that comes with {args.model} may run"] * args.trust_remote_code
    auto, own = args.task.auto, getattr(config, "auto_map", {}) if args.trust_remote_code else {}
    if type(config) not in auto._model_mapping and auto.__name__ not in own:
        cannot = f"{config.model_type} models cannot {args.task.does}"
        raise UserError(f"--model {args.model}: {cannot}; choose, for example, {args.task.such_as}")
    config.name_or_path = args.model
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
    """Says in one line why transformers could not fetch a model or read it in the context."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        if "trust_remote_code" in str(error):
            why = "it comes with Python code of its own; if you trust it, pass --trust-remote-code"
        elif not os.path.exists(args.model):
            why = "there is no such folder, and the Hugging Face hub does not have it or cannot be"
            why += f" reached; pass a model's folder, or {args.task.tiny}"
            why += ", or --no-pretrained --data fake" * (args.model in KNOWN)
        raise UserError(f"--model {args.model}: {why}") from None


def tokenizer(args):
    """Returns the tokenizer of args.model, a pretrained model."""
    with explained(args):
        found = AutoTokenizer.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
    # Some models, such as Llama, were trained without padding. The attention mask hides it.
    found.pad_token = found.pad_token or found.eos_token
    return found


def longest(args):
    """Returns how many tokens args.config allows, None if it sets no limit."""
    positions = getattr(args.config.get_text_config(), "max_position_embeddings", None)
    if not positions or positions < 0:  # BLOOM and T5 have no limit; XLNet has -1
        return None
    with torch.device("meta"):
        model = language_model(args)
    tables = [m for name, m in model.named_modules() if name.endswith("position_embeddings")]
    # RoBERTa and similar models count positions from padding_idx + 1 on.
    found = (getattr(table, "padding_idx", None) for table in tables)
    return positions - max((n + 1 for n in found if n is not None), default=0)


def classifier(args):
    """Builds `args.model` for `args.num_classes` classes, with random weights.

    Input: input_ids and attention_mask, (batch, tokens); output: an object with logits.
    """
    args.config.num_labels = args.num_classes
    return language_model(args)


def language_model(args):
    """Builds `args.model`, with random weights, for what `args.task` does: next-token prediction.

    Input: input_ids, (batch, tokens); output: an object with logits, (batch, tokens, vocabulary).
    """
    return args.task.auto.from_config(args.config, trust_remote_code=args.trust_remote_code)


def weights(args):
    """Returns the file with the weights that all scripts start from, in fp32.

    Written when it is first needed: from pretrained weights, with a new head if they have none for
    `args.num_classes` classes; or from random ones, which depend on `args.seed` alone. A simulation
    has a file of its own, `args.weights_file`.
    """
    if hasattr(args, "weights_file"):
        return args.weights_file
    if args.num_classes:
        args.config.num_labels = args.num_classes
    commit = getattr(args.config, "_commit_hash", None)
    # Another model may have been saved in the same folder since.
    source = [args.config.to_json_string(), commit, args.pretrained, args.seed, stamps(args.model)]
    digest = hashlib.sha256(json.dumps(source).encode()).hexdigest()[:16]
    name = f"{Path(args.model).name}-{digest}.pt"
    return made_once(name, lambda part: torch.save(_state_dict(args), part))


def stamps(path):
    """Returns what tells whether a file, or what is in a folder, has changed; [] for neither."""
    files = [Path(path), *sorted(Path(path).rglob("*"))]
    return [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files if f.is_file()]


def _state_dict(args):
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(args.seed)
        if not args.pretrained:
            return args.task.model(args).state_dict()
        with explained(args):
            return args.task.auto.from_pretrained(
                args.model,
                config=args.config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # a head for other classes is replaced by a new one
                trust_remote_code=args.trust_remote_code,
            ).state_dict()


def blocks(model):
    """Returns the blocks that a transformer repeats: the members of its outermost ModuleLists."""
    found, left = [], [model]
    while left:
        module = left.pop(0)
        children = [*module.children()]
        lists = isinstance(module, torch.nn.ModuleList)
        found += [c for c in children if lists and not isinstance(c, torch.nn.ModuleList)]
        left[:0] = [c for c in children if c not in found]
    if not found:
        raise UserError(f"{type(model).__name__} has no blocks (no nn.ModuleList) to shard")
    return found


def restore_buffers(model, device):
    """Computes the buffers that no file of weights holds, such as positions and frequencies.

    A model that was built empty has none, and conversion to 16 bit would round them. transformers'
    from_pretrained() does the same. All buffers move to the device: only parameters are offloaded.
    """
    model = getattr(model, "module", model)  # out of Fabric's wrapper
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(device)
    for part in (*model.modules(), *model.parameters()):
        part._is_hf_initialized = True  # initialize_weights() leaves it as it is
    with torch.device("meta"):
        twin = type(model)._from_config(model.config, dtype=model.dtype)
    made = {}
    for name, wanted in twin.named_non_persistent_buffers():
        owner, _, leaf = name.rpartition(".")
        unset = UNSET if wanted.dtype.is_signed else 0
        made[name] = torch.full(wanted.shape, unset, dtype=wanted.dtype, device=device)
        module = model.get_submodule(owner)
        module._buffers[leaf] = made[name]
        module._is_hf_initialized = False
    model.initialize_weights()
    for name, buffer in made.items():
        if (buffer == UNSET).any():
            empty = f"{type(model).__name__} cannot start empty"
            raise UserError(f"{empty}: transformers has no rule for its buffer {name}")


UNSET = -12345  # is neither a position nor a frequency


def without_adapters(model, state):
    """Returns a state dict that needs no peft: LoRA's matrices are added to what they adapt."""
    adapted = {n: m for n, m in model.named_modules() if hasattr(m, "lora_A")}
    whole = {k: t for k, t in state.items() if k.rpartition(".lora_")[0] not in adapted}
    for name, layer in adapted.items():
        scale = layer.scaling["default"]  # LoRA's alpha divided by its rank
        a, b = (state[f"{name}.lora_{ab}.default.weight"].float() for ab in "AB")
        weight = whole[f"{name}.base_layer.weight"].to(torch.float32)  # it may be in 4 bit
        whole[f"{name}.base_layer.weight"] = weight + scale * (b @ a)
    return {k.replace(".base_layer.", "."): t for k, t in whole.items()}


def save(args, model, state, folder):
    """Writes a trained model, whose whole state dict is on the host, for from_pretrained()."""
    with torch.device("meta"):  # it needs no weights, since save_pretrained() gets the state
        plain = args.task.model(args)
    args.tokenizer.save_pretrained(folder)
    plain.save_pretrained(folder, state_dict=without_adapters(model, state))
