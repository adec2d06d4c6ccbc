"""Classify texts with a fine-tuned model: python 11_llm/classify.py DIR "a text" ..."""

import os
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.run import errors
from shared.run.cli import Parser
from shared.run.errors import UserError

transformers.logging.disable_progress_bar()


def classify(folder, texts):
    """Return the most probable class of each text and its probability, from 0 to 1.

    Args:
        folder: what --save wrote, or any folder with a classifier and its tokenizer in the format
            of Hugging Face.
        texts: list of str.

    Raises:
        UserError: there is no such model.
    """
    if not os.path.isfile(Path(folder) / "config.json"):
        raise UserError(
            f"{folder} holds no model; pass a folder that 11_llm/train.py --save has written"
        )
    try:
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, trust_remote_code=False
        ).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        tokens = tokenizer(
            texts, padding=True, truncation=True, return_token_type_ids=False, return_tensors="pt"
        )
        with torch.no_grad():
            probabilities = model(**tokens).logits.float().softmax(-1)  # (texts, classes)
    except Exception as error:  # damaged files raise those of json, safetensors or tokenizers
        raise UserError(
            f"{folder} holds no usable classifier"
            f" ({(str(error).strip() or type(error).__name__).splitlines()[0]})"
        ) from None
    return [(model.config.id2label[int(p.argmax())], float(p.max())) for p in probabilities]


def main(argv=None):
    errors.install()
    parser = Parser(description=__doc__.split(":")[0] + ".")
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="a model that 11_llm/before.py or train.py has saved with --save DIR",
    )
    parser.add_argument("texts", metavar="TEXT", nargs="+", help="what to classify")
    args = parser.parse_args(argv)
    for text, (label, probability) in zip(args.texts, classify(args.folder, args.texts)):
        print(f"{label} ({probability:.0%}): {text}")


if __name__ == "__main__":
    main()
