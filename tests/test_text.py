"""Promise: 11_llm trains any Hugging Face classifier, sharded or not, to the same result, and padding never counts."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import ROOT, TEXT, Spy, cpu_only, read_json, run
from lightning.fabric import Fabric
from transformers import AutoModelForSequenceClassification

from shared import UserError, cli, stages, text, text_data, text_models, text_sources

TINY = ["--preset", "tiny"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 200, "pad_token_id": 0}
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "hidden_dropout": 0.0, "seq_classif_dropout": 0.0}
FAMILIES = {  # an encoder, one with other names, a decoder with rotary embeddings and grouped keys, one with ALiBi
    "bert": transformers.BertConfig(**SMALL, max_position_embeddings=64),
    "distilbert": transformers.DistilBertConfig(vocab_size=200, dim=32, n_layers=3, n_heads=4, hidden_dim=64, max_position_embeddings=64),
    "qwen3": transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8, max_position_embeddings=64),
    "bloom": transformers.BloomConfig(vocab_size=200, hidden_size=32, n_layer=3, n_head=4, pad_token_id=0),
}


def small(family):
    """Returns a small model with weights large enough that a wrong position or mask shows in its logits."""
    config = FAMILIES[family]
    for name, value in STILL.items():
        setattr(config, name, value)
    config.use_cache = False
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2) if p.ndim > 1 else None
    return model


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A CSV file with 60 texts of unequal length."""
    file = tmp_path_factory.mktemp("data") / "table.csv"
    rows = [f'"{"good " if i % 2 else "bad "}{"word " * (i % 7)}{i}",{"up" if i % 2 else "down"}' for i in range(60)]
    file.write_text("\n".join(["text,label", *rows]))
    return file


@pytest.fixture(scope="module")
def sharded(tmp_path_factory, table):
    """What each of four processes saw, a list by rank of dictionaries by model and precision; and the folder of models."""
    folder = tmp_path_factory.mktemp("models")
    for family in FAMILIES:
        small(family).save_pretrained(folder / family)
        text_data.new_tokenizer(["good bad up down word " + " ".join(map(str, range(60)))]).save_pretrained(folder / family)
    out = tmp_path_factory.mktemp("out") / "seen.json"
    run("-m", "torch.distributed.run", "--nproc-per-node", 4, "tests/sharded_text.py", folder, table, out)
    return read_json(out), folder


@pytest.mark.parametrize("precision", ["bf16-true", "32-true"])
@pytest.mark.parametrize("family", FAMILIES)
def test_loads_what_from_pretrained_loads(sharded, family, precision):
    """Also what no checkpoint holds: positions, rotary frequencies in full precision."""
    for rank in sharded[0]:
        seen = rank[f"{family} {precision}"]
        assert seen["same logits"] and seen["all sharded"]
        assert seen["dtypes"] == ["torch.float32" if precision == "32-true" else "torch.bfloat16"]


@pytest.mark.parametrize("family", FAMILIES)
def test_sharded_is_as_one_device(sharded, table, family):
    """Four processes, each with texts and padding of its own, reach the losses of before.py."""
    module = stages.load("11_llm/before")
    args = cli.parse(module.__file__, [*TINY, "--model", str(sharded[1] / family), "--data", str(table)], task=text, batch_size=12)
    fabric = module.make_fabric(args)
    loader = text.loaders(args)[0]
    model, optimizer = module.build(fabric, args)
    losses = [module.train_step(fabric, model, optimizer, tokens, labels)[0].item() for (tokens, labels), _ in zip(loader, range(4))]
    assert losses[0] != pytest.approx(losses[-1], rel=1e-3)
    assert sharded[0][0][f"{family} 32-true"]["losses"] == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_model_is_the_trained_one(sharded, family):
    """What was gathered from four processes and saved is loaded again, by from_pretrained and by --model."""
    folder = sharded[1] / f"{family}-trained"
    model, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert model.config.id2label == {0: "down", 1: "up"}
    start = AutoModelForSequenceClassification.from_pretrained(sharded[1] / family)
    moved = [(a.float() - b).abs().max().item() for a, b in zip(model.parameters(), start.parameters())]
    assert 0 < max(moved) < 0.01  # four steps of Adam
    args = cli.parse(stages.path("11_llm/train"), [*TINY, "--model", str(folder)], task=text, batch_size=12)
    args.num_classes = 2
    state = torch.load(text.checkpoint(args), weights_only=True)
    assert all(torch.equal(state[name], value.float()) for name, value in model.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch", [12, 7, 2])
def test_padding_and_micro_batches_change_nothing(family, batch):
    """Same gradients from texts all at once, in micro-batches, and with more padding, also for a last, partial batch."""
    model = small(family).double()
    generator = torch.Generator().manual_seed(1)
    input_ids = torch.zeros(batch, 24, dtype=torch.long)
    for row in input_ids:
        length = torch.randint(2, 25, (), generator=generator)
        row[:length] = torch.randint(6, 100, (int(length),), generator=generator)
    labels = torch.arange(batch) % 2
    padded = torch.cat([input_ids, torch.zeros(batch, 8, dtype=torch.long)], 1)
    results = []
    for script, ids in (("before", input_ids), ("train", input_ids), ("before", padded), ("train", padded)):
        fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
        wrapped, optimizer = fabric.setup(model, Spy(model.parameters(), lr=0.1))
        loss, logits = stages.load(f"11_llm/{script}").train_step(fabric, wrapped, optimizer, {"input_ids": ids, "attention_mask": (ids > 0).long()}, labels)
        results.append([loss, logits, *optimizer.optimizer.grads])
    assert max(g.abs().max() for g in results[0][2:]) > 1e-3
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


KINDS = (
    "Albert:1 Bart:24 Bert:12 BigBird:12 Bloom:2 DebertaV2:24 DistilBert:6 Electra:12 Funnel:12 GPT2:12 Gemma3Text:26 Llama:32 Mistral:32 Mixtral:32 "
    "ModernBert:22 OPT:12 Qwen2:32 Qwen3:32 Roberta:12 T5:12 XLNet:24"
).split()


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_found_in_any_model(kind):
    name, n = kind.split(":")
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(getattr(transformers, f"{name}Config")())
    found = text.blocks(model)
    assert len(found) == int(n)
    inside = {id(p) for block in found for p in block.parameters()}
    total = sum(p.numel() for p in model.parameters())
    rest = sum(p.numel() for p in model.parameters() if id(p) not in inside)
    embeddings = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Embedding))
    assert rest <= embeddings + 0.08 * total  # what is in no block are embeddings, and little else


def test_a_model_without_blocks():
    with pytest.raises(UserError, match="has no blocks .* choose another --model"):
        text.blocks(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_known_configurations_are_the_published_models():
    millions = {"distilbert-base-uncased": 67, "google-bert/bert-large-uncased": 335, "google/bigbird-roberta-base": 128, "bigscience/bloom-560m": 559, "Qwen/Qwen3-0.6B": 596}
    assert set(text_models.KNOWN) == set(millions)
    for name, n in millions.items():
        args = SimpleNamespace(model=name, pretrained=False, trust_remote_code=False, num_classes=2)
        args.config = text_models.configuration(args)
        with torch.device("meta"):
            model = text.classifier(args)
        assert sum(p.numel() for p in model.parameters()) == pytest.approx(n * 1e6, rel=0.01)


def test_a_buffer_that_nobody_can_restore(monkeypatch):
    model = small("bert")
    monkeypatch.setattr(transformers.BertPreTrainedModel, "_init_weights", lambda self, module: None)
    with pytest.raises(UserError, match="cannot start empty: transformers has no rule for its buffer bert.embeddings.position_ids"):
        text.restore_buffers(model, "cpu")


def test_before_and_train_differ_in_the_techniques_only():
    before, train = (stages.path(name).read_text() for name in TEXT)
    assert before[before.index("    fabric = make_fabric(args)") :] == train[train.index("    fabric = make_fabric(args)") :]
    assert before.count("\n") < train.count("\n") <= 130
    for name in ("BATCH_SIZE = 12", "torch.optim.Adam(model.parameters(), lr=args.adam_lr)", "F.cross_entropy(logits, "):
        assert name in before and name in train


def test_memory_falls_and_what_is_learned_stays(ladder):
    before, train = (ladder[2][name] for name in TEXT)
    assert train["train"]["device_peak_gb"] < before["train"]["device_peak_gb"] / 3
    assert train["load"]["device_peak_gb"] < before["load"]["device_peak_gb"] / 2
    assert min(before["test_accuracy"], train["test_accuracy"]) >= 0.8
    assert train["precision"] == "bf16-true" and before["batch_size"] == train["batch_size"] == 12
    held = before["train"]["breakdown_gb"], train["train"]["breakdown_gb"]
    assert held[1]["parameters"] == pytest.approx(held[0]["parameters"] / 8, rel=0.01)  # 16 bit, a quarter of it
    assert held[1]["optimizer states"] == pytest.approx(held[0]["optimizer states"] / 8, rel=0.01)


def test_train_save_classify(tmp_path):
    run("11_llm/before.py", *TINY, "--epochs", 2, "--limit", 1500, "--save", tmp_path / "model", "--record", tmp_path / "r.jsonl")
    assert json.loads((tmp_path / "r.jsonl").read_text())["test_accuracy"] > 0.7
    texts = ["The story is truly brilliant: go and see it.", "The story is truly boring: save your money."]
    printed = run("11_llm/classify.py", tmp_path / "model", *texts).splitlines()
    assert printed[-2].startswith("positive (") and printed[-2].endswith(texts[0])
    assert printed[-1].startswith("negative (")


WRONG = [
    (["--model", "{tmp}/nowhere"], "there is no such folder, and the Hugging Face hub does not have it or cannot be reached"),
    (["--model", "{tmp}"], "this folder holds no usable model"),
    (["--model", "{clip}"], "clip models have no head to classify text with"),
    (["--model", "{code}"], "it comes with Python code of its own; if you trust that, pass --trust-remote-code"),
    (["--max-length", "513"], "--max-length 513: distilbert_tiny takes 512 tokens at most"),
    (["--max-length", "0"], "0 is not a positive whole number"),
    (["--data", "nowhere"], "there is no such file or folder; pass reviews, imdb, fake"),
    (["--data", "{tmp}/empty.csv"], "the file is empty; it must be CSV with the columns text and label"),
    (["--data", "{tmp}/empty.jsonl"], "the file is empty; it must be JSONL"),
    (["--data", "{tmp}/heading.csv"], "there are no rows; there must be two classes or more"),
    (["--data", "{tmp}/columns.csv"], "there is no column label, only text, sentiment; the columns must be called text and label"),
    (["--data", "{tmp}/columns.jsonl"], "there is no column text, only label, review"),
    (["--data", "{tmp}/numbers.csv"], "are no classes; label must be one of at most 100 classes"),
    (["--data", "{tmp}/gap.csv"], "row 2 has no label; mend or remove it"),
    (["--data", "{tmp}/one.csv"], "every label is up; there must be two classes or more"),
    (["--data", "{tmp}/torn.jsonl"], "cannot be read ("),
    (["--data", "{tmp}/commas.csv"], "texts with a comma must be in quotes"),
    (["--data", "{tmp}/table.xlsx"], "the name of a file must end in .csv or .jsonl"),
    (["--data", "{tmp}/few.csv"], "2 texts are too few to train, validate and test with; 10 is the least"),
    (["--data", "{tmp}"], "there are no texts; there must be two classes or more, each a folder with *.txt in it"),
    (["--data", "fake", "--save", "{tmp}/x"], "--save: noise teaches a model nothing"),
    (["--save", "{tmp}"], "there are files in it that are no model; choose another folder"),
    (["--save", "/proc/x"], "cannot write /proc/x/config.json"),
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("broken")
    files = {
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
    for name, content in files.items():
        (tmp / name).write_text(content)
    clip, code = tmp_path_factory.mktemp("clip"), tmp_path_factory.mktemp("code")
    transformers.CLIPConfig().save_pretrained(clip)
    (code / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Model"}}))
    (code / "code.py").write_text("raise SystemExit('this must not run')")
    return {"tmp": tmp, "clip": clip, "code": code}


@pytest.mark.parametrize("argv, message", WRONG)
def test_bad_input(monkeypatch, broken, argv, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # as without a network, but at once
    with pytest.raises(UserError) as error:
        stages.load("11_llm/before").main([*TINY, *(a.format(**broken) for a in argv)])
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("script", ["before", "train"])
def test_bad_input_ends_in_one_line(script):
    done = subprocess.run([sys.executable, f"11_llm/{script}.py", *TINY, "--data", "nowhere"], cwd=ROOT, env=cpu_only(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith(f"11_llm/{script}.py: --data nowhere: there is no such file or folder")


def test_weights_saved_in_16_bit_are_trained_as_the_script_says(tmp_path):
    model = small("bert").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    args = cli.parse(stages.path("11_llm/before"), [*TINY, "--model", str(tmp_path)], task=text, batch_size=12)
    args.num_classes = 2
    assert {p.dtype for p in text.classifier(args).parameters()} == {torch.float32}
    state = torch.load(text.checkpoint(args), weights_only=True)
    assert {t.dtype for t in state.values()} == {torch.float32}
    assert torch.equal(state["bert.pooler.dense.weight"], model.bert.pooler.dense.weight.float())


@pytest.mark.parametrize("kind, longest", [("Bert", 512), ("Roberta", 510), ("Bloom", None), ("T5", None), ("Llama", 2048)])
def test_how_many_tokens_a_model_takes(tmp_path, kind, longest):
    getattr(transformers, f"{kind}Config")(num_hidden_layers=1, vocab_size=100).save_pretrained(tmp_path)
    args = cli.parse(stages.path("11_llm/before"), [*TINY, "--model", str(tmp_path)], task=text, batch_size=12)
    assert text_models.longest(args) == longest  # RoBERTa counts from 2 on: its 512 positions, here, are two fewer tokens
    assert args.max_length == min(512, longest or 512)
    assert args.config.pad_token_id is not None


def test_a_model_that_is_damaged_or_without_tokenizer(tmp_path, table):
    small("bert").save_pretrained(tmp_path)
    argv = [*TINY, "--model", str(tmp_path), "--data", str(table)]
    with pytest.raises(UserError, match="there is no tokenizer beside the weights"):
        stages.load("11_llm/before").main(argv)
    text_data.new_tokenizer(["good bad word"]).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match="this folder holds no usable model"):
        stages.load("11_llm/before").main(argv)
    assert "holds no usable classifier" in run("11_llm/classify.py", tmp_path, "x", code=2)


def test_classify_says_what_is_missing(tmp_path):
    assert "holds no model; pass a folder that 11_llm/train.py --save has written" in run("11_llm/classify.py", tmp_path, "x", code=2)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "holds no usable classifier" in run("11_llm/classify.py", tmp_path, "x", code=2)


def test_imdb_without_network(monkeypatch):
    def offline(*_):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(text_sources.datasets, "load_dataset", offline)
    with pytest.raises(UserError, match="IMDb could not be downloaded .*--data FOLDER with aclImdb unpacked"):
        stages.load("11_llm/before").main([*TINY, "--data", "imdb"])
