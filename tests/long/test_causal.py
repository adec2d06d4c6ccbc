"""Promise: causal language models train on any texts; chunks of losses, tiles of MLPs are exact.

LoRA and QLoRA can be saved, and Hugging Face's Trainer does the same as before.py.
"""

import json
import sys
from functools import partial

import pytest
import torch
import transformers
from conftest import run
from helpers.emulated import NEEDS
from helpers.predictions import predict_all
from helpers.single_process import losses, one_update
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from shared.lab.records import scripts
from shared.lab.records.reading import read
from shared.memory.accounting.blocks import tensors
from shared.run.errors import UserError
from shared.text import data, reviews
from shared.text.roads import causal

CAUSAL, TINY = ("11_llm/causal", "11_llm/causal_chunked"), ["--preset", "tiny"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96}
LIKE_LLAMA = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2, "pad_token_id": 0}
FAMILIES = {
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 96},
    "GPTNeoX": {**SMALL, "intermediate_size": 64},
    "OPT": {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "Llama": LIKE_LLAMA,
    "Gemma": {**LIKE_LLAMA, "head_dim": 8},
}
SCALED = {"Gemma2": {**LIKE_LLAMA, "head_dim": 8}, "Cohere": LIKE_LLAMA}
TILED = {"Qwen3": {**LIKE_LLAMA, "head_dim": 8}, "Mistral": LIKE_LLAMA, **SCALED}
# Its MLP has two inputs.
TILED["Bloom"] = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 96}
TILED |= {family: FAMILIES[family] for family in ("GPT2", "GPTNeoX", "Llama", "Gemma")}
NOT_TILED = {"OPT": FAMILIES["OPT"], "Mixtral": LIKE_LLAMA, "Mamba": SMALL}


def small(family):
    """Return a small model of a family in double precision, without dropout."""
    torch.manual_seed(0)
    options = (FAMILIES | TILED | NOT_TILED)[family]
    config = getattr(transformers, f"{family}Config")(**options, use_cache=False)
    return AutoModelForCausalLM.from_config(config).double().eval()


def parsed(*options):
    return causal.parse(scripts.get(CAUSAL[0]).path, [*TINY, *map(str, options)], 12)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_parts_and_whole(family):
    """Same loss, same gradients; and a token's logits do not depend on later tokens."""
    ids = torch.arange(36).view(3, 12) % 90
    labels = (ids + 1) % 90
    tokens = {"input_ids": ids}
    whole, parts = (one_update(name, small(family), tokens, labels) for name in CAUSAL)
    assert max(g.abs().max() for g in whole.grads) > 1e-3
    for a, b in zip([whole.loss, *whole.grads], [parts.loss, *parts.grads], strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-6)
    changed = ids.clone()
    changed[:, -1] = 91
    with torch.no_grad():
        here, there = (small(family)(input_ids=x).logits[:, :-1] for x in (ids, changed))
    torch.testing.assert_close(here, there)


@pytest.mark.parametrize("family", SCALED)
def test_logits_that_are_changed_later_are_not_made_in_parts(family):
    with pytest.raises(UserError, match="are not those of a single layer .*; 11_llm/causal.py"):
        causal.head(small(family))


@pytest.mark.parametrize("family", TILED)
def test_in_tiles_and_whole(family, tile=5):
    """Same loss, same gradients, with a last tile that is smaller; no MLP computes more tokens."""
    ids = torch.arange(36).view(3, 12) % 90
    whole, tiled = small(family), small(family)
    module, rows = scripts.get("11_llm/tiled_mlp").load(), set()
    module.TILE = tile
    for mlp in causal.mlps(tiled):
        first = next(layer for layer in mlp.modules() if hasattr(layer, "weight"))
        first.register_forward_pre_hook(lambda _, inputs: rows.add(inputs[0][..., 0].numel()))
        mlp.forward = partial(module.tiled, mlp.forward)
    kept = [one_update(CAUSAL[0], model, {"input_ids": ids}, ids) for model in (whole, tiled)]
    assert max(g.abs().max() for g in kept[0].grads) > 1e-3
    for a, b in zip(*([its.loss, *its.grads] for its in kept), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)  # rotary frequencies are in fp32
    assert rows == {tile, 36 % tile}


@pytest.mark.parametrize("family", NOT_TILED)
def test_models_without_an_mlp_in_each_block_are_not_tiled(family):
    with pytest.raises(UserError, match=f"^{family}ForCausalLM has no MLPs to tile .*causal.py"):
        causal.mlps(small(family))


UNFIT = "the interpreter of this Triton does not fit this NumPy"  # Triton 3.6 and NumPy 2.4
FUSED = f"""
import torch
UNFIT = {UNFIT!r}
from shared.text.roads.causal import liger_fused_linear_cross_entropy as fused
torch.manual_seed(0)
hidden, labels = torch.randn(40, 16, requires_grad=True), torch.randint(96, (40,))
for bias in (False, True):
    head, found = torch.nn.Linear(16, 96, bias=bias), []
    for torch.Tensor.is_cuda in (False, True):
        try:
            loss = fused(hidden, head.weight, labels, head.bias)
        except Exception as error:  # InterpreterError of Triton, from a TypeError
            if "0-dimensional" not in str(error):
                raise
            print(UNFIT)
            raise SystemExit
        found.append([loss, *torch.autograd.grad(loss, [hidden, *head.parameters()])])
    assert "Liger" in type(loss.grad_fn).__name__
    torch.testing.assert_close(*found)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
def test_the_fused_loss_is_the_whole_loss():
    """By Liger's own kernels, which Triton interprets on a CPU, too slowly to train with."""
    if UNFIT in run("-c", FUSED, TRITON_INTERPRET="1"):
        pytest.skip(UNFIT)


@NEEDS
def test_the_fused_loss_has_no_logits():
    """On an emulated GPU; on a CPU, the script computes the loss of its parent."""
    whole, fused = (
        record["train"] for record in predict_all([CAUSAL[0], "11_llm/liger"], "tiny").values()
    )
    logits = 12 * 128 * 4096 * 4 / 1e9
    assert whole["device_peak_gb"] - fused["device_peak_gb"] > 3 * logits
    assert fused["breakdown_gb"]["temporaries"] < logits / 2


def test_every_token_is_guessed_once(tmp_path):
    """Texts of any length are joined, with an end-of-text token after each."""
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    texts = [f"Note {i}. " + "Wörter " * i for i in range(30)]
    for i, text in enumerate(texts):
        (folder / ("deep" if i % 2 else "") / f"{i}.txt").write_text(text, encoding="utf-8")
    args = parsed("--data", folder, "--max-length", 16)
    sets, _, tokenizer = causal.packed(args)
    assert tokenizer.model_max_length == 16
    pieces = [row["input_ids"] for part in ("train", "val", "test") for row in sets[part]]
    assert {len(piece) for piece in pieces} == {17}
    assert all(a[-1] == b[0] for a, b in zip(pieces, pieces[1:]))
    ids = [*pieces[0], *(token for piece in pieces[1:] for token in piece[1:])]
    found = tokenizer.decode(ids).split("<|endoftext|>")
    assert set(found[:-1]) <= set(texts) and len(found) > 25
    loaders = data.loaders(args)
    assert loaders.dataset == "notes" and loaders.classes is None
    tokens, labels = next(iter(loaders.train))
    assert tokens["input_ids"].shape == labels.shape == (12, 16)
    assert torch.equal(tokens["input_ids"][:, 1:], labels[:, :-1])
    assert len({t.untyped_storage().data_ptr() for t in tensors((tokens, labels))}) == 2


@pytest.mark.parametrize("kind", ["Bert", "XLNet"])
def test_models_that_look_ahead_are_refused(tmp_path, kind):
    getattr(transformers, f"{kind}Config")().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="see the tokens that they would have to predict"):
        parsed("--model", tmp_path)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A causal model trained on reviews for some updates: its --save folder; losses and record."""
    folder = tmp_path_factory.mktemp("causal") / "writer"
    options = ["--max-steps", "12", "--save", str(folder), "--max-length", "64"]
    return folder, losses(scripts.get(CAUSAL[1]).load(), *options)


def test_what_is_saved_goes_on_with_a_text(writer):
    folder, (seen, record) = writer
    assert seen[-1] < seen[0] - 2 and "test_accuracy" not in record
    printed = run("11_llm/generate.py", folder, "The film", "I found", "--tokens", 8)
    assert printed.splitlines()[0].startswith("The film") and "\nI found" in printed
    assert run("11_llm/generate.py", folder, "The film", "I found", "--tokens", 8) == printed
    assert "holds no model; pass a folder" in run("11_llm/generate.py", folder.parent, "a", code=2)


def test_perplexity_is_that_of_the_saved_model(writer):
    folder, (_, record) = writer
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    args = parsed("--max-length", 64)
    test = causal.packed(args)[0]["test"]["input_ids"][: 12 * 12]  # as many as with --max-steps
    ids = torch.tensor(test)
    with torch.no_grad():
        logits = model(input_ids=ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    assert record["test_perplexity"] == pytest.approx(loss.exp().item(), rel=1e-4)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder with a classifier trained on reviews, and a table of reviews with swapped labels."""
    folder = tmp_path_factory.mktemp("learned")
    options = ["--max-steps", "220", "--save", str(folder / "model")]
    losses(scripts.get("11_llm/before").load(), *options)
    texts, labels = reviews.reviews(1200)
    rows = [json.dumps({"text": t, "label": f"{1 - y}"}) for t, y in zip(texts, labels)]
    (folder / "others.jsonl").write_text("\n".join(rows))
    return folder


@pytest.mark.parametrize("name", ["lora", "qlora"])
def test_few_weights_learn_what_is_new(learned, tmp_path, name):
    """The saved model computes the same without peft."""
    module, built = scripts.get(f"11_llm/{name}").load(), []
    build = module.build
    module.build = lambda *args: built.append(build(*args)) or built[0]
    module.LR = {"tiny": 7 * module.LR["tiny"]}  # a small model needs larger steps
    given = ["--model", str(learned / "model"), "--data", str(learned / "others.jsonl")]
    seen, record = losses(module, *given, "--save", str(tmp_path / "new"), "--max-steps", "60")
    assert seen[0] > 2 and sum(seen[-10:]) / 10 < 0.5  # it had learned the opposite
    assert record["test_accuracy"] > 0.8
    model = built[0][0].module.eval()
    named = {type(p).__name__ for n, p in model.named_parameters() if "base_layer.weight" in n}
    assert named == {"NF4Tensor" if name == "qlora" else "Parameter"}
    learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert learning < 0.1 * sum(p.numel() for p in model.parameters())
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "new").eval()
    assert {type(m).__name__ for m in plain.modules()} & {"Linear"} and not hasattr(plain, "peft")
    options = {"padding": True, "return_token_type_ids": False, "return_tensors": "pt"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    tokens = tokenizer(["the film is great", "a bore"], **options)
    with torch.no_grad():
        there, here = model(**tokens).logits, plain(**tokens).logits
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)


def test_parts_of_texts_on_four_devices_give_the_same_losses(tmp_path):
    """With positions that are learned; test_long_context.py has rotary embeddings."""
    still = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0)
    config = transformers.GPT2Config(**FAMILIES["GPT2"], **still)
    config.save_pretrained(tmp_path / "model")
    same = [*TINY, "--model", tmp_path / "model", "--data", "fake", "--no-pretrained"]
    same += ["--max-length", 32, "--max-steps", 3]
    records = []
    for name in ("11_llm/causal", "11_llm/context_parallel"):
        run(f"{name}.py", *same, "--record", tmp_path / "records.jsonl")
        records.append(read(tmp_path / "records.jsonl")[0][-1])
    whole, parts = records
    assert parts["world_size"] == 4 and whole["world_size"] == 1
    for loss in ("first_loss", "last_loss"):
        assert parts[loss] == pytest.approx(whole[loss], rel=1e-5)
    assert parts["test_perplexity"] == pytest.approx(whole["test_perplexity"], rel=1e-4)
    held, its = (r["train"]["breakdown_gb"]["activations"] for r in (parts, whole))
    assert held < 0.4 * its
