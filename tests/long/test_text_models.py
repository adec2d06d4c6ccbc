"""Promise: configurations, weights and lengths of 11_llm's models are those of Hugging Face.

tests/test_text.py tests their training.
"""

from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import TEXT, read_json, run
from helpers.small_models import LLAMA
from transformers import AutoModelForSequenceClassification

from shared.lab.records import scripts
from shared.run.errors import UserError
from shared.text import cli, models

TINY = ["--preset", "tiny"]
BEFORE = scripts.get(TEXT[0])


def bert():
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_config(transformers.BertConfig(**LLAMA))


def test_a_model_without_blocks():
    with pytest.raises(UserError, match="has no blocks"):
        models.blocks(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_weights_saved_in_16_bit_are_trained_as_the_script_says(tmp_path):
    model = bert().to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    args = cli.parse(BEFORE.path, [*TINY, "--model", str(tmp_path)], 12)
    loaders = SimpleNamespace(config=models.for_data(args.config, ["a", "b"], None))
    assert {p.dtype for p in models.classifier(args, loaders).parameters()} == {torch.float32}
    state = torch.load(models.weights(args, loaders), weights_only=True)
    assert {t.dtype for t in state.values()} == {torch.float32}
    assert torch.equal(state["bert.pooler.dense.weight"], model.bert.pooler.dense.weight.float())


@pytest.mark.parametrize(
    "kind, longest", [("Bert", 512), ("Roberta", 510), ("Bloom", None), ("Llama", 2048)]
)
def test_how_many_tokens_a_model_takes(tmp_path, kind, longest):
    config = getattr(transformers, f"{kind}Config")(num_hidden_layers=1, vocab_size=100)
    config.save_pretrained(tmp_path)
    args = cli.parse(BEFORE.path, [*TINY, "--model", str(tmp_path)], 12)
    # RoBERTa's positions start at 2: its 512 positions here are 510 tokens.
    assert models.longest(args) == longest
    assert args.max_length == min(512, longest or 512)
    assert args.config.pad_token_id is not None


def test_train_save_classify(tmp_path):
    saved, record = tmp_path / "model", tmp_path / "r.jsonl"
    argv = [*TINY, "--epochs", "2", "--limit", "1500", "--save", saved, "--record", record]
    BEFORE.load().main([str(word) for word in argv])
    assert read_json(record)["test_accuracy"] > 0.7
    texts = [
        "The story is truly brilliant: go and see it.",
        "The story is boring: save your money.",
    ]
    printed = run("11_llm/classify.py", saved, *texts).splitlines()
    assert printed[-2].startswith("positive (") and printed[-2].endswith(texts[0])
    assert printed[-1].startswith("negative (")
