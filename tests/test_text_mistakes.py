"""Promise: texts or models that 11_llm cannot use are refused in one line that says what would be
right.
"""

import json

import pytest
import transformers
from conftest import run

from shared.common import scripts
from shared.common.errors import UserError
from shared.text import sources
from shared.text.tokenizer import new_tokenizer

TINY = ["--preset", "tiny"]
BEFORE = scripts.get("11_llm/before")
WRONG = [
    (
        ["--model", "{tmp}/nowhere"],
        "there is no such folder, and the Hugging Face hub does not have it or cannot be reached",
    ),
    (["--model", "{tmp}"], "this folder holds no usable model"),
    (["--model", "{clip}"], "clip models have no head to classify text with"),
    (
        ["--model", "{code}"],
        "it comes with Python code of its own; if you trust that, pass --trust-remote-code",
    ),
    (["--max-length", "513"], "--max-length 513: distilbert_tiny takes 512 tokens at most"),
    (["--max-length", "0"], "0 is not a positive whole number"),
    (["--data", "nowhere"], "there is no such file or folder; pass reviews, imdb, fake"),
    (
        ["--data", "{tmp}/empty.csv"],
        "the file is empty; it must be CSV with the columns text and label",
    ),
    (["--data", "{tmp}/empty.jsonl"], "the file is empty; it must be JSONL"),
    (["--data", "{tmp}/heading.csv"], "there are no rows; there must be two classes or more"),
    (
        ["--data", "{tmp}/columns.csv"],
        "there is no column label, only text, sentiment; the columns must be called text and label",
    ),
    (["--data", "{tmp}/columns.jsonl"], "there is no column text, only label, review"),
    (["--data", "{tmp}/numbers.csv"], "are no classes; label must be one of at most 100 classes"),
    (["--data", "{tmp}/gap.csv"], "row 2 has no label; mend or remove it"),
    (["--data", "{tmp}/one.csv"], "every label is up; there must be two classes or more"),
    (["--data", "{tmp}/torn.jsonl"], "cannot be read ("),
    (["--data", "{tmp}/commas.csv"], "texts with a comma must be in quotes"),
    (["--data", "{tmp}/table.xlsx"], "the name of a file must end in .csv or .jsonl"),
    (
        ["--data", "{tmp}/few.csv"],
        "2 texts are too few to train, validate and test with; 10 is the least",
    ),
    (
        ["--data", "{tmp}"],
        "there are no texts; there must be two classes or more, each a folder with *.txt in it",
    ),
    (["--data", "fake", "--save", "{tmp}/x"], "--save: noise teaches a model nothing"),
    (["--save", "{tmp}"], "there are files in it that are no model; choose another folder"),
    (["--save", "/proc/x"], "cannot write /proc/x/config.json"),
]
FILES = {
    "empty.csv": "",
    "empty.jsonl": "\n",
    "heading.csv": "text,label\n",
    "columns.csv": "text,sentiment\na,b\n",
    "columns.jsonl": '{"label": 1, "review": "a"}\n',
    "numbers.csv": "text,label\n" + "".join(f"a,{i / 7}\n" for i in range(50)),
    "gap.csv": "text,label\na,up\nb,\n",
    "one.csv": "text,label\na,up\nb,up\n",
    "torn.jsonl": '{"text": "a", "label": 1}\n{"text": "b", "la',
    "commas.csv": "text,label\nhello, this is,0\ngood bye, then,1\n",
    "table.xlsx": "x",
    "few.csv": "text,label\na,up\nb,down\n",
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Folders of files that are no texts, of a model without a head, of one with its own code."""
    tmp, clip, code = (tmp_path_factory.mktemp(name) for name in ("broken", "clip", "code"))
    for name, content in FILES.items():
        (tmp / name).write_text(content)
    transformers.CLIPConfig().save_pretrained(clip)
    own = {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Model"}
    (code / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": own}))
    (code / "code.py").write_text("raise SystemExit('this must not run')")
    return {"tmp": tmp, "clip": clip, "code": code}


@pytest.mark.parametrize("argv, message", WRONG)
def test_bad_input(monkeypatch, broken, argv, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # As without a network, but at once.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as error:
        BEFORE.load().main([*TINY, *(a.format(**broken) for a in argv)])
    assert message in str(error.value) and "\n" not in str(error.value)


def classify(*argv):
    """Runs classify.py as a module."""
    scripts.Script("11_llm/classify", "", "", None, False).load().main([*map(str, argv)])


def test_a_model_that_is_damaged_or_without_tokenizer(tmp_path):
    table, folder = tmp_path / "table.csv", tmp_path / "bert"
    rows = [f"{'good bad'.split()[i % 2]} word {i},{'up down'.split()[i % 2]}" for i in range(20)]
    table.write_text("\n".join(["text,label", *rows]))
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=200
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    argv = [*TINY, "--model", str(folder), "--data", str(table)]
    with pytest.raises(UserError, match="there is no tokenizer beside the weights"):
        BEFORE.load().main(argv)
    new_tokenizer(["good bad word"]).save_pretrained(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match="this folder holds no usable model"):
        BEFORE.load().main(argv)
    with pytest.raises(UserError, match="holds no usable classifier"):
        classify(folder, "x")


def test_classify_says_what_is_missing(tmp_path):
    missing = "holds no model; pass a folder that 11_llm/train.py --save has written"
    assert missing in run("11_llm/classify.py", tmp_path, "x", code=2)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match="holds no usable classifier"):
        classify(tmp_path, "x")


def test_imdb_without_network(monkeypatch):
    def offline(*_):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(sources.datasets, "load_dataset", offline)
    unpacked = "IMDb could not be downloaded .*--data FOLDER with aclImdb unpacked"
    with pytest.raises(UserError, match=unpacked):
        BEFORE.load().main([*TINY, "--data", "imdb"])
