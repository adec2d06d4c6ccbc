"""What both scripts of 11_llm share: options, and what any Hugging Face classifier takes to be sharded, checkpointed,
loaded without a second copy, and saved.

The twin of shared/images.py. Models and their weights are in shared/text_models.py, data in shared/text_data.py.
"""

from pathlib import Path

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import AutoModelForSequenceClassification

from shared import UserError, cli, images, text_data, text_models
from shared.text_data import loaders
from shared.text_models import checkpoint, classifier

__all__ = ["blocks", "checkpoint", "classifier", "loaders", "micro_batches", "restore_buffers", "save"]  # what the scripts use

UNIT = "texts"
PACKAGES = ("transformers", "datasets")  # that a measurement depends on, besides figures.PACKAGES
PRESETS = {"tiny": {"model": text_models.TINY, "data": "reviews"}, "full": {"model": "distilbert-base-uncased", "data": "imdb"}}
CLASSES = 2  # of the presets' data, for predictions
WITHOUT_BF16 = "11_llm/before.py computes in fp32"
MODEL_HELP = f"{text_models.TINY}, or folder or Hugging Face id of a model that can classify text, such as bert-base-uncased"
DATA_HELP = "reviews (made up, comes with this repository), imdb, fake, a folder like aclImdb, or CSV or JSONL files with the columns text and label"


def knows(model):
    """Tells whether a model's name can be that of a language model."""
    return not images.knows(model)


def suits(what):
    """Tells whether --data can be meant for texts."""
    return what == "fake" or not images.suits(what)


def add_options(parser, alone):
    """Adds the options that only these scripts have.

    Args:
        parser: argparse.ArgumentParser.
        alone: whether it is a script's own; the ladder's has fewer.
    """
    if alone:
        parser.add_argument("--save", type=Path, metavar="DIR", help="write the fine-tuned model to DIR, as Hugging Face's from_pretrained() reads it")
    parser.add_argument("--limit", type=cli.positive, metavar="N", help="train with N texts, and validate and test with at most N each (default: all)")
    add_model_options(parser)


def add_model_options(parser):
    """Adds those of them that the predictor has too."""
    parser.add_argument("--max-length", type=cli.positive, metavar="N", help="cut texts off after N tokens (default: 512, or what the model takes if that is less)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the Python code that comes with some models; without this they are refused")


def choose(args):
    """Fills in what depends on the model: args.config (a transformers.PreTrainedConfig), max_length and adam_lr.

    Raises:
        UserError: there is no such model, it cannot be fetched, it cannot classify, or --max-length is more than it takes.
    """
    tiny = args.model == text_models.TINY
    args.pretrained = args.pretrained and not tiny
    args.config = text_models.configuration(args)
    longest = text_models.longest(args)
    if longest and args.max_length and args.max_length > longest:
        raise UserError(f"--max-length {args.max_length}: {args.model} takes {longest} tokens at most")
    args.wanted_length = args.max_length
    args.max_length = args.max_length or min(512, longest or 512)
    if getattr(args, "save", None):
        _can_save(args)
    args.adam_lr = 3e-4 if tiny else 5e-5  # what starts from random weights wants larger steps


def _can_save(args):
    if args.data == "fake":
        raise UserError("--save: noise teaches a model nothing that is worth keeping, and has no tokenizer; choose other --data")
    if args.save.is_dir() and any(args.save.iterdir()) and not (args.save / "config.json").is_file():
        raise UserError(f"--save {args.save}: there are files in it that are no model; choose another folder")
    cli.writable(args.save / "config.json")


def settings(args):
    """Returns what a record says of the inputs' size."""
    return {"max_length": args.max_length}


def passed_on(args):
    """Returns the options of add_options() that a script gets from the ladder."""
    options = ["--max-length", args.wanted_length] if args.wanted_length else []
    options += ["--limit", args.limit] if args.limit else []
    return options + ["--trust-remote-code"] * args.trust_remote_code


def prepare(args):
    """Makes what a training needs: data, and weights on disk. Fills in args.num_classes and args.dataset.

    Raises:
        UserError: one of them is missing, unusable, or cannot be downloaded.
    """
    text_data.prepared(args)
    checkpoint(args)


def logits(model, tokens):
    """Returns what a model says of a batch: (batch, classes)."""
    return model(**tokens).logits


def fake_batch(args, n, update, device):
    """Returns a batch of n texts and labels without contents, for simulations: as long as args.input_shapes says."""
    length = args.input_shapes[update][1] if args.input_shapes else args.max_length
    tokens = {name: torch.empty(n, length, dtype=torch.long, device=device) for name in ("input_ids", "attention_mask")}
    return tokens, torch.empty(n, dtype=torch.long, device=device)


def micro_batches(tokens, labels, size):
    """Yields a batch, in parts of at most `size` texts: tokens, {name: (size, length)}, and labels, (size,)."""
    parts = zip(*(t.split(size) for t in tokens.values()))
    for part, y in zip(parts, labels.split(size)):
        yield dict(zip(tokens, part)), y


def blocks(model):
    """Returns the blocks that a transformer repeats, in order: the members of its outermost nn.ModuleLists.

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
        raise UserError(f"{type(model).__name__} has no blocks (no nn.ModuleList), so there is nothing to shard and checkpoint one by one; choose another --model")
    return found


def restore_buffers(model, device):
    """Computes the buffers that no checkpoint holds, such as positions and rotary frequencies, after an empty start.

    An empty start leaves garbage in them, and conversion to 16 bit would round them. So they are made anew, in the type
    that transformers gives them, and filled by the model's own rule, without touching parameters. All buffers move to
    the device: offloading is for parameters.

    Source: transformers.PreTrainedModel.from_pretrained, which does the same after loading.

    Raises:
        UserError: the model has no such rule.
    """
    model = getattr(model, "module", model)  # out of Fabric's wrapper
    for module in model.modules():
        module._is_hf_initialized = True  # how transformers marks what initialize_weights() shall leave as it is
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(device)
    for p in model.parameters():
        p._is_hf_initialized = True
    with torch.device("meta"):
        twin = AutoModelForSequenceClassification.from_config(model.config, dtype=model.dtype, trust_remote_code=model.is_custom_code())
    made = {}
    for name, wanted in twin.named_non_persistent_buffers():
        owner, _, leaf = name.rpartition(".")
        made[name] = torch.full(wanted.shape, UNSET if wanted.dtype.is_signed else 0, dtype=wanted.dtype, device=device)
        module = model.get_submodule(owner)
        module._buffers[leaf] = made[name]
        module._is_hf_initialized = False
    model.initialize_weights()
    for name, buffer in made.items():
        if (buffer == UNSET).any():
            raise UserError(f"{type(model).__name__} cannot start empty: transformers has no rule for its buffer {name}")


UNSET = -12345  # no position, no frequency


def save(fabric, model, args):
    """Writes the model to args.save in Hugging Face's format, if that is given: the first process gathers all shards.

    AutoModelForSequenceClassification.from_pretrained(args.save) loads it, and so does --model.
    """
    if not args.save:
        return
    model = getattr(model, "module", model)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if fabric.is_global_zero:
        with torch.device("meta"):  # of its class, only the format of the files is wanted
            plain = classifier(args)
        try:
            args.tokenizer.save_pretrained(args.save)
            plain.save_pretrained(args.save, state_dict=state)
        except OSError as error:
            raise UserError(f"cannot write {args.save} ({error.strerror or error}); what was measured is not lost, but the model is") from None
        print(f"saved to {args.save}: python 11_llm/classify.py {args.save} \"a text\"")
    fabric.barrier()
