"""Promise: texts or models that 11_llm cannot use are refused in one line that says what would be
right.
"""

import json
import os

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
    (["--model", "{clip}"], "clip models cannot classify text"),
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
    (["--save", "/proc/x"], "--save /proc/x: No such file or directory; choose another folder"),
    (["--data", ""], "argument --data: it is empty; name something"),
    (["--model", ""], "argument --model: it is empty; name something"),
    (["--data", "x" * 5000], "xxx...xxx"),
    (["--data", "a/" * 5000 + "b.csv"], "there is no such file or folder"),
    (["--data", "a\0b"], "there is no such file or folder"),
    (["--data", "a\nb"], "--data 'a\\nb': there is no such file or folder"),
    (["--model", "x" * 5000], "xxx: there is no such folder"),
    (["--model", "a\nb\0"], "--model 'a\\nb\\x00': there is no such folder"),
    (["--model", "/"], "this folder holds no usable model"),
    (["--model", "{odd}/pipe.csv"], "there is no such folder"),
    (["--model", "{odd}/loop"], "there is no such folder"),
    (["--model", "{tmp}/few.csv"], "this is a file; pass the folder that it is in"),
    (["--model", "{odd}/model"], "this folder holds no usable model"),
    (["--data", "/sys"], "there are no texts"),
    (["--data", "/proc"], "there are no texts"),
    (["--data", "{odd}/pipe.csv"], "this is no file or folder"),
    (["--data", "{odd}/zero.csv"], "this is no file or folder"),
    (["--data", "{odd}/loop"], "there is no such file or folder"),
    (["--data", "{odd}/folder.csv"], "there are no texts"),
    (["--data", "{odd}/vast.csv"], "1099.51 GB of text are too many for this computer"),
    (["--data", "{odd}/vast"], "1099.51 GB of text are too many for this computer"),
    (["--data", "{odd}/pipes"], "a/x.txt is no file; mend or remove it"),
    (["--data", "{odd}/folders"], "a/x.txt is no file; mend or remove it"),
    (["--data", "{odd}/dangling"], "a/x.txt is a link that leads nowhere; mend or remove it"),
    (["--data", "{odd}/circle"], "a/x.txt is a link that leads nowhere; mend or remove it"),
    (["--data", "{odd}/bytes"], "has half of a surrogate pair in it"),
    (["--data", "{odd}/utf16"], "a/x.txt is not UTF-8 text; convert or remove it"),
    (["--data", "{tmp}/half.jsonl"], "half.jsonl: row 2 has half of a surrogate pair in it"),
    (["--data", "{tmp}/half_label.jsonl"], "row 1 has half of a surrogate pair in it"),
    (["--data", "{tmp}/deep.jsonl"], "cannot be read (maximum recursion depth exceeded"),
    (["--data", "{tmp}/nul.jsonl"], "cannot be read (Expecting value"),
    (["--data", "{tmp}/lists.jsonl"], "cannot be read ("),
    (["--data", "{tmp}/long.jsonl"], "row 1 has 2,000,000 characters in one piece"),
    (["--data", "{tmp}/nul.csv"], "there is no column text, only '\\x00\\x00"),
    (["--data", "{tmp}/lines.csv"], "there is no column text, only 'te\\nxt, label'"),
    (["--data", "{tmp}/wide.csv"], "only xxx"),
    (["--data", "{tmp}/one_line.csv"], "every label is 'u\\np'; there must be two classes or more"),
    (["--data", "{tmp}/utf16.csv"], "cannot be read ('utf-8' codec can't decode byte"),
    (["--data", "{tmp}/digits.csv"], "are no classes"),
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
    "half.jsonl": '{"text": "a", "label": 1}\n{"text": "\\ud800", "label": 2}\n',
    "half_label.jsonl": '{"text": "a", "label": "\\udfff"}\n{"text": "b", "label": 2}\n',
    "deep.jsonl": "[" * 100_000,
    "nul.jsonl": "\0\n",
    "lists.jsonl": "[1]\n",
    "long.jsonl": f'{{"text": "{"x" * 2_000_000}", "label": 1}}\n{{"text": "b", "label": 2}}\n',
    "nul.csv": "\0" * 5000,
    "lines.csv": '"te\nxt",label\na,up\n',
    "wide.csv": "x" * 99_999 + ",label\na,up\n",
    "one_line.csv": 'text,label\na,"u\np"\nb,"u\np"\n',
    "utf16.csv": "text,label\na,up\n".encode("utf-16"),
    "digits.csv": "text,label\n" + "".join(f"a,{str(i) * 5000}\n" for i in range(1, 9)),
}


def odd(folder):
    """Fills a folder with what is no file, what has no end, and what leads nowhere."""
    spoil = {
        "pipes": os.mkfifo,
        "folders": os.mkdir,
        "dangling": lambda file: file.symlink_to("/nowhere"),
        "circle": lambda file: file.symlink_to(file),
        "vast": lambda file: file.write_text("x") and os.truncate(file, 1 << 40),
        "utf16": lambda file: file.write_text("x", encoding="utf-16"),
        "bytes": lambda file: open(os.path.join(bytes(file.parent), b"\xff.txt"), "w").close(),
    }
    for name, make in spoil.items():
        for label in "a", "b":
            (folder / name / label).mkdir(parents=True)
            (folder / name / label / "1.txt").write_text("text")
        make(folder / name / "a" / "x.txt")
    (folder / "bytes" / "a").rename(os.path.join(folder, "bytes", os.fsdecode(b"\xff")))
    os.mkfifo(folder / "pipe.csv")
    (folder / "zero.csv").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "folder.csv").mkdir()
    (folder / "vast.csv").write_text("text,label\n")
    os.truncate(folder / "vast.csv", 1 << 40)
    (folder / "model").mkdir()
    os.mkfifo(folder / "model" / "config.json")
    (folder / "model" / "x").symlink_to("/nowhere")
    return folder


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Folders of files that are no texts, of a model without a head, of one with its own code."""
    tmp, clip, code = (tmp_path_factory.mktemp(name) for name in ("broken", "clip", "code"))
    for name, content in FILES.items():
        (tmp / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    transformers.CLIPConfig().save_pretrained(clip)
    own = {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Model"}
    (code / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": own}))
    (code / "code.py").write_text("raise SystemExit('this must not run')")
    return {"tmp": tmp, "clip": clip, "code": code, "odd": odd(tmp_path_factory.mktemp("odd"))}


@pytest.mark.parametrize("argv, message", WRONG)
def test_bad_input(monkeypatch, broken, argv, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # As without a network, but at once.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as error:
        BEFORE.load().main([*TINY, *(a.format(**broken) for a in argv)])
    said = str(error.value)
    assert message in said and "\n" not in said and len(said) < 1500


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
