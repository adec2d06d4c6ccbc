"""Promise: 11_llm trains any Hugging Face classifier, sharded or not, to the same result.

Padding never counts.
"""

from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import TEXT, Spy, read_json, run
from lightning.fabric import Fabric
from transformers import AutoModelForSequenceClassification

from shared.common import scripts
from shared.common.errors import UserError
from shared.text import cli, configs, data, models
from shared.text.tokenizer import new_tokenizer

TINY = ["--preset", "tiny"]
BEFORE, TRAIN = (scripts.get(name) for name in TEXT)
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 200,
    "pad_token_id": 0,
}
STILL = (  # what families call the rates of dropout
    "dropout",
    "attention_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "hidden_dropout",
    "seq_classif_dropout",
)
# An encoder, one with other names, a decoder with rotary embeddings and grouped keys, one with
# ALiBi.
FAMILIES = {
    "bert": transformers.BertConfig(**SMALL, max_position_embeddings=64),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=200, dim=32, n_layers=3, n_heads=4, hidden_dim=64, max_position_embeddings=64
    ),
    "qwen3": transformers.Qwen3Config(
        **SMALL, num_key_value_heads=2, head_dim=8, max_position_embeddings=64
    ),
    "bloom": transformers.BloomConfig(
        vocab_size=200, hidden_size=32, n_layer=3, n_head=4, pad_token_id=0
    ),
}


def small(family):
    """Returns a small model.

    Its weights are so large that a wrong position or mask shows in its logits.
    """
    config = FAMILIES[family]
    for name in STILL:
        setattr(config, name, 0.0)
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
    words, labels = ("bad", "good"), ("down", "up")
    rows = [f'"{words[i % 2]} {"word " * (i % 7)}{i}",{labels[i % 2]}' for i in range(60)]
    file.write_text("\n".join(["text,label", *rows]))
    return file


@pytest.fixture(scope="module")
def sharded(tmp_path_factory, table):
    """What each of four processes saw; and the folder of models.

    What they saw is a list by rank of dictionaries by model and precision.
    """
    folder = tmp_path_factory.mktemp("models")
    texts = ["good bad up down word " + " ".join(map(str, range(60)))]
    for family in FAMILIES:
        small(family).save_pretrained(folder / family)
        new_tokenizer(texts).save_pretrained(folder / family)
    out = tmp_path_factory.mktemp("out") / "seen.json"
    run("tests/sharded_text.py", folder, table, out)
    return read_json(out), folder


@pytest.mark.parametrize("precision", ["bf16-true", "32-true"])
@pytest.mark.parametrize("family", FAMILIES)
def test_loads_what_from_pretrained_loads(sharded, family, precision):
    """Also what no checkpoint holds: positions, rotary frequencies in full precision."""
    for rank in sharded[0]:
        seen = rank[f"{family} {precision}"]
        assert seen["same logits"] and seen["all sharded"] and seen["same file"]
        assert seen["dtypes"] == ["torch.float32" if precision == "32-true" else "torch.bfloat16"]


@pytest.mark.parametrize("family", FAMILIES)
def test_sharded_is_as_one_device(sharded, table, family):
    """Four processes, each with texts and padding of its own, reach the losses of before.py."""
    module = BEFORE.load()
    argv = [*TINY, "--model", str(sharded[1] / family), "--data", str(table)]
    args = cli.parse(module.__file__, argv, batch_size=12)
    fabric = module.make_fabric(args)
    loader = data.loaders(args)[0]
    model, optimizer = module.build(fabric, args)
    losses = [
        module.train_step(fabric, model, optimizer, tokens, labels)[0].item()
        for (tokens, labels), _ in zip(loader, range(4))
    ]
    assert losses[0] != pytest.approx(losses[-1], rel=1e-3)
    assert sharded[0][0][f"{family} 32-true"]["losses"] == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_model_is_the_trained_one(sharded, family):
    """What four processes gathered and saved can be loaded, by from_pretrained and by --model."""
    folder = sharded[1] / f"{family}-trained"
    model, info = AutoModelForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(info[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched"))
    assert model.config.id2label == {0: "down", 1: "up"}
    start = AutoModelForSequenceClassification.from_pretrained(sharded[1] / family)
    pairs = zip(model.parameters(), start.parameters())
    moved = [(a.float() - b).abs().max().item() for a, b in pairs]
    assert 0 < max(moved) < 0.01  # four steps of Adam
    args = cli.parse(TRAIN.path, [*TINY, "--model", str(folder)], batch_size=12)
    args.num_classes = 2
    state = torch.load(models.checkpoint(args), weights_only=True)
    assert all(torch.equal(state[name], p.float()) for name, p in model.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch", [12, 7, 2])
def test_padding_and_micro_batches_change_nothing(family, batch):
    """Same gradients from texts all at once, in micro-batches, and with more padding.

    Also for a last, partial batch.
    """
    model = small(family).double()
    generator = torch.Generator().manual_seed(1)
    input_ids = torch.zeros(batch, 24, dtype=torch.long)
    for row in input_ids:
        length = torch.randint(2, 25, (), generator=generator)
        row[:length] = torch.randint(6, 100, (int(length),), generator=generator)
    labels = torch.arange(batch) % 2
    padded = torch.cat([input_ids, torch.zeros(batch, 8, dtype=torch.long)], 1)
    results = []
    for ids in (input_ids, padded):
        for script in (BEFORE, TRAIN):
            fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
            wrapped, optimizer = fabric.setup(model, Spy(model.parameters(), lr=0.1))
            tokens = {"input_ids": ids, "attention_mask": (ids > 0).long()}
            step = script.load().train_step
            loss, logits = step(fabric, wrapped, optimizer, tokens, labels)
            results.append([loss, logits, *optimizer.optimizer.grads])
    assert max(g.abs().max() for g in results[0][2:]) > 1e-3
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


KINDS = (
    "Albert:1 Bart:24 Bert:12 BigBird:12 Bloom:2 DebertaV2:24 DistilBert:6 Electra:12 Funnel:12 "
    "GPT2:12 Gemma3Text:26 Llama:32 Mistral:32 Mixtral:32 ModernBert:22 OPT:12 Qwen2:32 Qwen3:32 "
    "Roberta:12 T5:12 XLNet:24"
).split()


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_found_in_any_model(kind):
    name, n = kind.split(":")
    with torch.device("meta"):
        config = getattr(transformers, f"{name}Config")()
        model = AutoModelForSequenceClassification.from_config(config)
    found = models.blocks(model)
    assert len(found) == int(n)
    inside = {id(p) for block in found for p in block.parameters()}
    total = sum(p.numel() for p in model.parameters())
    rest = sum(p.numel() for p in model.parameters() if id(p) not in inside)
    tables = [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    embeddings = sum(m.weight.numel() for m in tables)
    # What is in no block are embeddings, and little else.
    assert rest <= embeddings + 0.08 * total


def test_a_model_without_blocks():
    with pytest.raises(UserError, match="has no blocks .* choose another --model"):
        models.blocks(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_known_configurations_are_the_published_models():
    # Without the layer for the next word, which a classifier does not have: of Llama's 8,030
    # millions 525, of Mistral's 7,242 131.
    millions = {
        "meta-llama/Meta-Llama-3-8B": 7505,
        "mistralai/Mistral-7B-v0.1": 7111,
        "distilbert-base-uncased": 67,
        "google-bert/bert-large-uncased": 335,
        "google/bigbird-roberta-base": 128,
        "bigscience/bloom-560m": 559,
        "Qwen/Qwen3-0.6B": 596,
    }
    assert set(configs.KNOWN) == set(millions)
    for name, n in millions.items():
        options = {"pretrained": False, "trust_remote_code": False, "num_classes": 2}
        options["task"] = cli.TASK
        args = SimpleNamespace(model=name, **options)
        args.config = configs.configuration(args)
        with torch.device("meta"):
            model = models.classifier(args)
        assert sum(p.numel() for p in model.parameters()) == pytest.approx(n * 1e6, rel=0.01)


def test_a_model_that_also_takes_pictures_may_have_no_padding_itself(tmp_path):
    config = transformers.Gemma3Config()
    assert not hasattr(config, "pad_token_id")
    config.save_pretrained(tmp_path)
    options = {"pretrained": False, "trust_remote_code": False, "task": cli.TASK}
    args = SimpleNamespace(model=str(tmp_path), **options)
    assert configs.configuration(args).pad_token_id == 0


def test_a_buffer_that_nobody_can_restore(monkeypatch):
    model = small("bert")
    does_nothing = lambda self, module: None  # noqa: E731
    monkeypatch.setattr(transformers.BertPreTrainedModel, "_init_weights", does_nothing)
    no_rule = "transformers has no rule for its buffer bert.embeddings.position_ids"
    with pytest.raises(UserError, match=f"cannot start empty: {no_rule}"):
        models.restore_buffers(model, "cpu")


def test_weights_saved_in_16_bit_are_trained_as_the_script_says(tmp_path):
    model = small("bert").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    args = cli.parse(BEFORE.path, [*TINY, "--model", str(tmp_path)], batch_size=12)
    args.num_classes = 2
    assert {p.dtype for p in models.classifier(args).parameters()} == {torch.float32}
    state = torch.load(models.checkpoint(args), weights_only=True)
    assert {t.dtype for t in state.values()} == {torch.float32}
    assert torch.equal(state["bert.pooler.dense.weight"], model.bert.pooler.dense.weight.float())


@pytest.mark.parametrize(
    "kind, longest",
    [("Bert", 512), ("Roberta", 510), ("Bloom", None), ("T5", None), ("Llama", 2048)],
)
def test_how_many_tokens_a_model_takes(tmp_path, kind, longest):
    config = getattr(transformers, f"{kind}Config")(num_hidden_layers=1, vocab_size=100)
    config.save_pretrained(tmp_path)
    args = cli.parse(BEFORE.path, [*TINY, "--model", str(tmp_path)], batch_size=12)
    # RoBERTa counts from 2 on: its 512 positions, here, are two fewer tokens.
    assert configs.longest(args) == longest
    assert args.max_length == min(512, longest or 512)
    assert args.config.pad_token_id is not None


def test_before_and_train_differ_in_the_techniques_only():
    before, train = (script.path.read_text() for script in (BEFORE, TRAIN))
    start = "    fabric = make_fabric(args)"
    assert before[before.index(start) :] == train[train.index(start) :]
    assert before.count("\n") < train.count("\n") <= 130
    adam = "torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)"
    for same in ("BATCH_SIZE = 12", adam, "F.cross_entropy(logits, "):
        assert same in before and same in train


def test_memory_falls_and_what_is_learned_stays(ladder):
    before, train = (ladder[2][name] for name in TEXT)
    assert train["train"]["device_peak_gb"] < before["train"]["device_peak_gb"] / 3
    assert train["load"]["device_peak_gb"] < before["load"]["device_peak_gb"] / 2
    assert min(before["test_accuracy"], train["test_accuracy"]) >= 0.8
    assert train["precision"] == "bf16-true" and before["batch_size"] == train["batch_size"] == 12
    held, less = (r["train"]["breakdown_gb"] for r in (before, train))
    for label in ("parameters", "optimizer states"):  # 16 bit, a quarter of it
        assert less[label] == pytest.approx(held[label] / 8, rel=0.01)


def test_train_save_classify(tmp_path):
    saved, record = tmp_path / "model", tmp_path / "r.jsonl"
    argv = [*TINY, "--epochs", "2", "--limit", "1500", "--save", saved, "--record", record]
    BEFORE.load().main([str(word) for word in argv])
    assert read_json(record)["test_accuracy"] > 0.7
    texts = [
        "The story is truly brilliant: go and see it.",
        "The story is truly boring: save your money.",
    ]
    printed = run("11_llm/classify.py", saved, *texts).splitlines()
    assert printed[-2].startswith("positive (") and printed[-2].endswith(texts[0])
    assert printed[-1].startswith("negative (")
