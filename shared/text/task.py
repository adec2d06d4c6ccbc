"""What is particular to the stages about texts; shared/images/task.py does the same for images."""

import torch
from transformers import AutoModelForSequenceClassification

from shared.common.errors import UserError
from shared.common.files import holds_texts
from shared.common.options import positive
from shared.common.task import Task
from shared.text import configs, data, models


class Texts(Task):
    """Texts that have classes; shared/causal/task.py overrides what going on with texts changes.

    Attributes:
        auto: the class of transformers that finds a model's class.
        does, such_as: what models of that class can do, and the name of one.
        tiny: the name of the model that this repository makes.
    """

    unit = "texts"
    auto = AutoModelForSequenceClassification
    does, such_as = "classify text", "bert-base-uncased"
    tiny = configs.TINY
    packages = ("transformers", "datasets")
    presets = {
        "tiny": {"model": configs.TINY, "data": "reviews"},
        "full": {"model": "distilbert-base-uncased", "data": "imdb"},
    }
    classes = 2
    without_bf16 = "11_llm/before.py computes in fp32"
    model_help = (
        f"{configs.TINY}, or folder or Hugging Face id of a model that can classify text, such as "
        "bert-base-uncased"
    )
    data_help = (
        "reviews (made up, part of this repository), imdb, fake, a folder like aclImdb, or CSV or "
        "JSONL files with the columns text and label"
    )

    saved_help = "as Hugging Face's from_pretrained() reads it"

    def knows(self, model):
        other = model in configs.MADE_HERE and model != self.tiny
        return not model.startswith("vit_") and not other

    def suits(self, data):
        return data in ("reviews", "imdb", "fake") or holds_texts(data)

    def add_options(self, parser, script):
        add = parser.add_argument
        limit = "train with N texts, and validate and test with at most N each (default: all)"
        add("--limit", type=positive, metavar="N", help=limit)
        add_model_options(parser)

    def choose(self, args):
        """Fills in args.config (a transformers.PreTrainedConfig), max_length and the factors.

        Raises:
            UserError: there is no such model, it cannot be fetched, it cannot classify, or
                --max-length is more than it takes.
        """
        tiny = args.model == self.tiny
        args.pretrained = args.pretrained and not tiny
        args.config = configs.configuration(args)
        longest = configs.longest(args)
        if longest and args.max_length and args.max_length > longest:
            raise UserError(
                f"--max-length {args.max_length}: {args.model} takes {longest} tokens at most"
            )
        args.wanted_length = args.max_length
        args.max_length = args.max_length or min(512, longest or 512)
        if getattr(args, "save", None) and args.data == "fake":
            raise UserError(
                "--save: noise teaches a model nothing that is worth keeping, and has no "
                "tokenizer; choose other --data"
            )
        # The tiny model starts from random weights.
        args.adam_lr_factor, args.sgd_lr_factor = (6, 5) if tiny else (1, 1)

    def settings(self, args):
        return {"max_length": args.max_length}

    def passed_on(self, args):
        options = ["--max-length", args.wanted_length] if args.wanted_length else []
        options += ["--limit", args.limit] if args.limit else []
        return options + ["--trust-remote-code"] * args.trust_remote_code

    def prepare(self, args):
        data.prepared(args)
        models.checkpoint(args)

    def checkpoint(self, args):
        return models.checkpoint(args)

    def model(self, args):
        return models.classifier(args)

    def outputs(self, model, tokens, labels):
        return model(**tokens).logits

    def whole(self, model, state):
        return models.without_adapters(model, state)

    def save(self, args, state, folder):
        models.save(args, state, folder)

    def use_of(self, folder):
        return f'python 11_llm/classify.py {folder} "a text"'

    def fake_batch(self, args, n, update, device):
        """Returns texts as long as args.input_shapes says, or all of args.max_length tokens."""
        length = args.input_shapes[update][1] if args.input_shapes else args.max_length
        names = ("input_ids", "attention_mask")
        tokens = {name: torch.empty(n, length, dtype=torch.long, device=device) for name in names}
        return tokens, torch.empty(n, dtype=torch.long, device=device)


def add_model_options(parser):
    """Adds those options that the predictor has too."""
    length = "cut texts off after N tokens (default: 512, or what the model takes if that is less)"
    code = "run the Python code that comes with some models; without this they are refused"
    parser.add_argument("--max-length", type=positive, metavar="N", help=length)
    parser.add_argument("--trust-remote-code", action="store_true", help=code)


TASK = Texts()
