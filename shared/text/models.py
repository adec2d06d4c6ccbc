"""Any model of Hugging Face's AutoModelFor... classes, with its weights in one file.

The functions here also serve to shard it, checkpoint it, load it without a second copy and save it.
"""

import hashlib
import json
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification

from shared.common.errors import UserError
from shared.common.files import cache_folder, stamps, written_once
from shared.common.mapping import mappable
from shared.common.weights import wrong
from shared.text.configs import explained


def classifier(args):
    """Builds `args.model` for `args.num_classes` classes, with random weights.

    Input: input_ids and attention_mask, both (batch, tokens), int64; output: an object with logits,
    (batch, classes).

    Raises:
        UserError: transformers cannot build it.
    """
    args.config.num_labels = args.num_classes
    return built(args)


def built(args):
    """Builds `args.model` for what `args.task` does, with random weights.

    Raises:
        UserError: transformers cannot build it.
    """
    with explained(args):
        return args.task.auto.from_config(args.config, trust_remote_code=args.trust_remote_code)


def checkpoint(args):
    """Returns the path of the file with the weights that both scripts start from.

    It holds a state dict in fp32. The file is written when it is first needed, and again if it is
    damaged: from pretrained weights, with a new head if they have none for `args.num_classes`
    classes; or from random ones.
    What is random depends on `args.seed` alone. A simulation has a file of its own,
    `args.checkpoint_file`.

    Raises:
        UserError: the weights cannot be downloaded, are damaged, or cannot be written.
    """
    if args.checkpoint_file:
        return args.checkpoint_file
    if args.num_classes:
        args.config.num_labels = args.num_classes
    source = [
        args.config.to_json_string(),
        getattr(args.config, "_commit_hash", None),
        args.pretrained,
        args.seed,
    ]
    folder = Path(args.model)
    source.append(stamps(folder.glob("*")))  # another model may have been saved there since
    name = folder.resolve().name if folder.is_dir() else args.model.replace("/", "--")
    digest = hashlib.sha256(json.dumps(source).encode()).hexdigest()[:16]
    path = cache_folder() / f"{name}-{digest}.pt"
    written_once(
        path, lambda: _state_dict(args), partial(wrong, build=lambda: args.task.model(args))
    )
    return mappable(path)


def _state_dict(args):
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(args.seed)
        if not args.pretrained:
            return args.task.model(args).state_dict()
        with explained(args):
            model = args.task.auto.from_pretrained(
                args.model,
                config=args.config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # a head for other classes is replaced by a new one
                trust_remote_code=args.trust_remote_code,
            )
        return model.state_dict()


def blocks(model):
    """Returns the blocks that a transformer repeats, in order.

    They are the members of its outermost nn.ModuleLists.

    Raises:
        UserError: it has none.
    """
    found = []

    def look(module, inside):
        for child in module.children():
            if inside and not isinstance(child, torch.nn.ModuleList):
                found.append(child)
            else:
                look(child, isinstance(child, torch.nn.ModuleList))

    look(model, False)
    if not found:
        raise UserError(
            f"{type(model).__name__} has no blocks (no nn.ModuleList), so there is nothing to shard"
            " and checkpoint one by one; choose another --model"
        )
    return found


def restore_buffers(model, device):
    """Computes the buffers that no checkpoint holds, such as positions and rotary frequencies.

    In a model that was built empty they are uninitialised, and conversion to 16 bit would round
    them. So they are made again, in the type that transformers gives them, and filled by the
    model's own rule, which leaves the parameters as they are. All buffers move to the device,
    because only parameters are offloaded.

    Source: transformers.PreTrainedModel.from_pretrained, which does the same after loading.

    Raises:
        UserError: the model has no such rule.
    """
    model = getattr(model, "module", model)  # out of Fabric's wrapper
    for module in model.modules():
        # With this, transformers marks what initialize_weights() must leave as it is.
        module._is_hf_initialized = True
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(device)
    for p in model.parameters():
        p._is_hf_initialized = True
    with torch.device("meta"):
        twin = AutoModelForSequenceClassification.from_config(
            model.config, dtype=model.dtype, trust_remote_code=model.is_custom_code()
        )
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
            raise UserError(
                f"{type(model).__name__} cannot start empty: transformers has no rule for its"
                f" buffer {name}"
            )


UNSET = -12345  # is neither a position nor a frequency


def without_adapters(model, state):
    """Returns a state dict in which the matrices of LoRA are added to the weights beside them.

    So from_pretrained() reads the model without peft. What is in 4 bit becomes fp32 before.

    Args:
        model: the trained one.
        state: its state dict, whole, on the host.
    """
    adapted = {n: m for n, m in model.named_modules() if hasattr(m, "lora_A")}
    whole = {k: t for k, t in state.items() if k.rpartition(".lora_")[0] not in adapted}
    for name, layer in adapted.items():
        scale = layer.scaling["default"]  # LoRA's alpha divided by its rank
        a, b = (state[f"{name}.lora_{ab}.default.weight"].float() for ab in "AB")
        weight = whole[f"{name}.base_layer.weight"]
        whole[f"{name}.base_layer.weight"] = weight.to(torch.float32) + scale * (b @ a)
    return {k.replace(".base_layer.", "."): t for k, t in whole.items()}


def save(args, state, folder):
    """Writes a trained model into a folder, in Hugging Face's format.

    args.task.auto.from_pretrained(folder) loads it, and so does --model.

    Args:
        args: the options.
        state: its state dict, whole, on the host.
        folder: pathlib.Path.

    Raises:
        OSError: it cannot be written.
    """
    with torch.device("meta"):  # it needs no weights, since save_pretrained() gets the state
        plain = args.task.model(args)
    args.tokenizer.save_pretrained(folder)
    plain.save_pretrained(folder, state_dict=state)
