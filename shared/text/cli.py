"""The command line of the scripts on texts, and their task."""

import functools
import types

from transformers import AutoModelForSequenceClassification

from shared.metrics import Accuracy
from shared.run import cli
from shared.run.cli import positive
from shared.run.errors import UserError
from shared.text import data, models


class Texts:
    """The task of text classification, for Meter and the commands; see also images.cli.Images."""

    unit, packages, classes = "texts", ("transformers", "datasets"), 2
    input_size = "max_length"
    learned, new_metric = "accuracy", Accuracy
    auto, tiny = AutoModelForSequenceClassification, models.TINY  # tiny is not downloaded
    does, such_as = "classify text", "bert-base-uncased"  # for messages: the task, an example
    presets = {
        "tiny": {"model": models.TINY, "data": "reviews"},
        "full": {"model": "distilbert-base-uncased", "data": "imdb"},
    }
    model_help = f"{tiny}, or folder or Hugging Face id of a model that can {does}"
    data_help = (
        "reviews (made up, part of this repository), imdb, fake, a folder like aclImdb, or CSV or "
        "JSONL files with the columns text and label"
    )
    saved_help = "as from_pretrained() of Hugging Face reads it"
    use = 'python 11_llm/classify.py {} "a text"'

    def add_options(self, parser):
        limit = "train with N texts, and validate and test with at most N each (default: all)"
        parser.add_argument("--limit", type=positive, metavar="N", help=limit)
        add_model_options(parser)

    def choose(self, args):
        """Set args.config (a transformers.PreTrainedConfig) and args.max_length."""
        args.pretrained = args.pretrained and args.model != self.tiny
        args.config = models.configuration(args)
        longest = models.longest(args)
        if longest and args.max_length and args.max_length > longest:
            takes = f"{args.model} accepts at most {longest} tokens"
            raise UserError(f"--max-length {args.max_length}: {takes}")
        args.max_length = args.max_length or min(512, longest or 512)

    prepared = staticmethod(data.prepared)  # returns tokenized texts, classes and the tokenizer
    weights = staticmethod(models.weights)
    save = staticmethod(models.save)

    def prepare(self, args):
        """Download the data of a run with these options, and write the file of initial weights."""
        _, classes, tokenizer = self.prepared(args)
        config = models.for_data(args.config, classes, tokenizer)
        models.weights(args, types.SimpleNamespace(config=config))

    def collate(self, args, config):
        """Return the function that collates examples into a batch."""
        # If max_length is not a multiple of 8, rounding up could exceed the model's limit.
        multiple = 8 if args.max_length % 8 == 0 else 1
        return functools.partial(data.padded, config.pad_token_id, multiple)

    def outputs(self, model, tokens, labels):
        return None, model(**tokens).logits


def add_model_options(parser):
    """Add the options on models, which the predictor has, too."""
    length = "cut texts off after N tokens (default: 512, or what the model takes if that is less)"
    code = "run the Python code that comes with some models; without this they are refused"
    parser.add_argument("--max-length", type=positive, metavar="N", help=length)
    parser.add_argument("--trust-remote-code", action="store_true", help=code)


TASK = Texts()
parse = functools.partial(cli.parse, TASK)
