"""Models of Hugging Face's AutoModelFor... classes, with their weights in one file.

Further functions help to shard, checkpoint, save, and load models without a second copy.
"""

import contextlib
import copy
import hashlib
import json
import logging
import os
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

from shared.run.errors import UserError
from shared.run.loading import made_once

transformers.logging.set_verbosity_error()  # it warns of new heads, which are intended
transformers.logging.disable_progress_bar()  # of loading; downloads have one of their own
# Without a network, the hub's client would report every attempt.
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

# Folders with a config.json each, so that memory can be predicted without a network. They hold what
# the config.json on the Hugging Face hub says; all else is the default of the configuration class.
CONFIGS = Path(__file__).parent / "configs"
# DistilBERT (https://arxiv.org/abs/1910.01108) at a sixth of its width and a third of its depth,
# and as small, for next-token prediction, GPT-2 (https://github.com/openai/gpt-2) and OLMoE
# (https://arxiv.org/abs/2409.02060), a mixture of experts, and Qwen2-VL
# (https://arxiv.org/abs/2409.12191), which reads images.
TINY, TINY_GPT = "distilbert_tiny", "gpt_tiny"
TINY_MOE, TINY_VLM = "olmoe_tiny", "qwen2_vl_tiny"
UNSET = -12345  # neither a position nor a frequency
KNOWN = {f.name.replace("--", "/"): f for f in sorted(CONFIGS.iterdir())}


def configuration(args):
    """Return the transformers.PreTrainedConfig of args.model.

    Raises:
        UserError: it cannot be read or downloaded, or models of this type cannot do the task.
    """
    name = args.model if args.pretrained else KNOWN.get(args.model, args.model)  # no network
    with explained(args):
        config = AutoConfig.from_pretrained(name, trust_remote_code=args.trust_remote_code)
    if args.trust_remote_code:
        args.notes.append(f"Python code that comes with {args.model} may run")
    auto, own = args.task.auto, getattr(config, "auto_map", {}) if args.trust_remote_code else {}
    if type(config) not in auto._model_mapping and auto.__name__ not in own:
        cannot = f"{config.model_type} models cannot {args.task.does}"
        raise UserError(f"--model {args.model}: {cannot}; choose, for example, {args.task.such_as}")
    config.name_or_path = args.model
    config.dtype = None  # it is the dtype of the saved weights; the script chooses its own
    # The two are the same object, except in models that also take images.
    for part in (config, config.get_text_config()):
        # The KV cache holds keys and values of earlier tokens, for generating text. With activation
        # checkpointing, they would be kept twice.
        part.use_cache = False
        pad = getattr(part, "pad_token_id", None)  # a model for images and text may have none
        part.pad_token_id = 0 if pad is None else pad  # until it is read from the tokenizer
    return config


@contextlib.contextmanager
def explained(args):
    """Raise UserError, in one line, if transformers cannot fetch or read a model in the context."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        if "trust_remote_code" in str(error):
            why = "it comes with Python code of its own; if you trust it, pass --trust-remote-code"
        elif not os.path.exists(args.model):
            why = "there is no such folder, and the Hugging Face hub does not have it or cannot be"
            why += f" reached; pass a model's folder, or {args.task.tiny}"
            why += ", or --dry-run" if args.model in KNOWN else ""
        elif not os.path.exists(f"{args.model}/config.json"):
            why = "pass a folder with a config.json; merge an adapter (LoRA) into its model first"
        raise UserError(f"--model {args.model}: {why}") from None


def tokenizer(args):
    """Return the tokenizer of args.model, a pretrained model."""
    with explained(args):
        made = AutoTokenizer.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
    # Some models, such as Llama, were trained without padding. The attention mask hides it.
    made.pad_token = made.pad_token or made.eos_token
    return made


def longest(args):
    """Return the maximum number of tokens that args.config allows, None if there is no limit."""
    positions = getattr(args.config.get_text_config(), "max_position_embeddings", None)
    if not positions or positions < 0:  # BLOOM and T5 have no limit; XLNet has -1
        return None
    with torch.device("meta"):
        model = _model(args, args.config)
    tables = [m for name, m in model.named_modules() if name.endswith("position_embeddings")]
    # RoBERTa and similar models count positions from padding_idx + 1 on.
    padding = (getattr(table, "padding_idx", None) for table in tables)
    return positions - max((n + 1 for n in padding if n is not None), default=0)


def for_data(config, classes, tokenizer):
    """Return a copy of a configuration with these classes and the tokenizer's padding."""
    if classes is None:  # the next token is predicted: no classes, and no padding
        return config
    config = copy.deepcopy(config)
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: i for i, name in enumerate(classes)}
    if tokenizer:
        for part in (config, config.get_text_config()):
            part.pad_token_id = tokenizer.pad_token_id
    return config


def classifier(args, loaders):
    """Build `args.model` for the classes of the loaders' texts, with random weights.

    Input: input_ids and attention_mask, (batch, tokens); output: has logits, (batch, classes).
    """
    return _model(args, loaders.config)


def language_model(args, loaders):
    """Build `args.model` for next-token prediction, with random weights.

    Input: input_ids, (batch, tokens); output: an object with logits, (batch, tokens, vocabulary).
    """
    return _model(args, loaders.config)


def _model(args, config):
    return args.task.auto.from_config(config, trust_remote_code=args.trust_remote_code)


def weights(args, loaders):
    """Return the file of weights that all scripts start from, in fp32.

    Write it when it is first needed: pretrained weights, with a new head if they have none for
    these classes; or random ones, which depend on `args.seed` alone.
    """
    config = loaders.config
    commit = getattr(config, "_commit_hash", None)
    # Another model may have been saved in the same folder since.
    source = [config.to_json_string(), commit, args.pretrained, args.seed, stamps(args.model)]
    digest = hashlib.sha256(json.dumps(source).encode()).hexdigest()[:16]
    name = f"{Path(args.model).name}-{digest}.pt"
    return made_once(name, lambda part: torch.save(_state_dict(args, config), part))


def stamps(path):
    """Return [path, size, time in ns] of a file, or of each file in a folder; [] if none exists."""
    files = [Path(path), *sorted(Path(path).rglob("*"))]
    return [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files if f.is_file()]


def _state_dict(args, config):
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(args.seed)
        if not args.pretrained:
            return _model(args, config).state_dict()
        with explained(args):
            return args.task.auto.from_pretrained(
                args.model,
                config=config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # a head for other classes is replaced by a new one
                trust_remote_code=args.trust_remote_code,
            ).state_dict()


def blocks(model):
    """Return the repeated blocks of a transformer: the members of its outermost ModuleLists."""
    members, left = [], [model]
    while left:
        module = left.pop(0)
        children = [*module.children()]
        if isinstance(module, torch.nn.ModuleList):
            members += [c for c in children if not isinstance(c, torch.nn.ModuleList)]
        left[:0] = [c for c in children if c not in members]
    if not members:
        raise UserError(f"{type(model).__name__} has no blocks (no nn.ModuleList) to shard")
    return members


def restore_buffers(model, device):
    """Compute the buffers that no file of weights holds, such as positions and frequencies.

    A model on the meta device lacks them, and conversion to 16 bits would round them. transformers'
    from_pretrained() does the same. All buffers move to the device: only parameters are offloaded.
    """
    model = getattr(model, "module", model)  # without Fabric's wrapper
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(device)
    for part in (*model.modules(), *model.parameters()):
        part._is_hf_initialized = True  # initialize_weights() skips it
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
            empty = f"{type(model).__name__} cannot be built without weights"
            raise UserError(f"{empty}: transformers does not initialize its buffer {name}")


def without_adapters(model, state):
    """Return a state dict without adapters: LoRA's products are merged into the weights."""
    adapted = {n: m for n, m in model.named_modules() if hasattr(m, "lora_A")}
    whole = {k: t for k, t in state.items() if k.rpartition(".lora_")[0] not in adapted}
    for name, layer in adapted.items():
        scale = layer.scaling["default"]  # LoRA's alpha divided by its rank
        a, b = (state[f"{name}.lora_{ab}.default.weight"].float() for ab in "AB")
        weight = whole[f"{name}.base_layer.weight"].to(torch.float32)  # it may be in 4 bits
        whole[f"{name}.base_layer.weight"] = weight + scale * (b @ a)
    return {k.replace(".base_layer.", "."): t for k, t in whole.items()}


def save(args, loaders, model, state, folder):
    """Write a trained model for from_pretrained(); state is its full state dict on the host."""
    with torch.device("meta"):  # it needs no weights, since save_pretrained() gets the state
        plain = _model(args, loaders.config)
    loaders.tokenizer.save_pretrained(folder)
    plain.save_pretrained(folder, state_dict=without_adapters(model, state))
