"""Promise: a prediction of a user's script has types, the host, ranks, and another PyTorch, too."""

import re

import pytest
from helpers.emulated import NEEDS
from helpers.own import answer, predicted

from emulated_gpu.cards import set_aside

pytestmark = NEEDS

MIB = 2**20
# Weights of 32 MiB in bf16 with Adam, a forward pass that computes in fp32, and 256 MiB pinned.
TYPES = """
import torch
model = torch.nn.Linear(4096, 4096, bias=False, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.Adam(model.parameters())
kept = torch.ones(64, 2**20)
pinned = torch.empty(64, 2**20, pin_memory=True)
for _ in range(4):
    inputs = torch.ones(8192, 4096, device="cuda", dtype=torch.bfloat16)
    model(inputs).float().exp().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# Each rank has a layer more than the one before.
SETS_ITS_CARD = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'
RANKS = """
import os, torch
layers = 1 + int(os.environ["RANK"])
{}
model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(layers))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(8, 8192, device="cuda")).sum().backward()
    optimizer.step()
"""
# As on a page of the hub, but for the names in the texts.
HUGGING_FACE = """
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
name = "distilbert-base-uncased"
tokenizer = AutoTokenizer.from_pretrained(pretrained_model_name_or_path=name)
model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased").cuda()
model.resize_token_embeddings(len(tokenizer))
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
chat = [{"role": "user", "content": "a film"}]
assert tokenizer.apply_chat_template(chat, tokenize=True)["input_ids"]
for _ in range(4):
    batch = tokenizer(["a good film"] * 8, padding="max_length", max_length=64, return_tensors="pt")
    model(**batch.to("cuda"), labels=torch.ones(8).long().cuda()).loss.backward()
    optimizer.step()
"""
# Four layers without a module: each keeps a result of 64 MiB. When the last one's gradient is
# there, three are left.
OWN_LOOP = """
import torch
weight = torch.zeros(2048, 2048, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
inputs = torch.ones(8192, 2048, device="cuda")
def loss():
    x = inputs
    for _ in range(4):
        x = (x @ weight).sigmoid()
    return x.sum()
for _ in range(4):
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
"""
# The optimizer's step calls what computes gradients, as Lightning's does.
CLOSURE = (
    OWN_LOOP.partition("for _ in range(4):\n    optimizer")[0]
    + """
def closure():
    optimizer.zero_grad()
    value = loss()
    value.backward()
    return value
for _ in range(4):
    optimizer.step(closure)
"""
)
# Its results in evaluation are 64 MiB.
EVALUATES = """
import torch
model, teacher = (torch.nn.Linear(2048, 2048, device="cuda") for _ in range(2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(64, 2048, device="cuda")).sum().backward()
    optimizer.step()
model.eval()
inputs = torch.ones(8192, 2048).cuda()
with torch.no_grad():
    hidden = teacher.eval()(model(inputs))
"""
# 8,192 tokens of 8,192 symbols: logits of 256 MiB in fp32.
LOGITS = """
import torch
model = torch.nn.Sequential(torch.nn.Embedding(8192, 64), torch.nn.Linear(64, 8192)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    tokens = torch.zeros(16, 512, dtype=torch.long, device="cuda")
    torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# Four results of 64 MiB, of two blocks.
BLOCKS = """
import torch
from torch.utils.checkpoint import checkpoint
def block():
    return torch.nn.Sequential(*({} for _ in range(4)))
blocks = torch.nn.ModuleList([block(), block()]).cuda().bfloat16()
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
for _ in range(4):
    x = torch.ones({}, device="cuda", dtype=torch.bfloat16)
    for each in blocks:
        x = {}
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LINEAR = "torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid())", "524288, 64"
CONVOLUTION = (
    "torch.nn.Sequential(torch.nn.Conv2d(16, 16, 1), torch.nn.Sigmoid())",
    "32, 16, 256, 256",
)


def test_types_stand_beside_the_bytes_and_the_host_apart(tmp_path):
    said, record = answer(TYPES, tmp_path)
    types = record["types_gb"]
    for category in ("parameters", "optimizer states"):
        assert types[category].keys() <= {"bf16", "fp32"}
        assert types[category]["bf16"] > 0.99 * sum(types[category].values())
    both = types["activations"] | types.get("temporaries", {})
    assert both["fp32"] * 1e9 >= 8192 * 4096 * 4  # the copy that .float() makes
    assert record["process"]["pinned_gb"] * 1e9 == 256 * MIB
    assert record["process"]["peak_gb"] * 1e9 > 256 * MIB  # kept memory has been written
    assert "bf16" in said and "; pinned 268.4 MB" in said


@pytest.mark.parametrize(
    ("script", "line", "place", "held"),
    [
        (OWN_LOOP, "    loss().backward()", "backward pass; ", "activations 201.3 MB fp32"),
        (CLOSURE, "    value.backward()", "backward pass; ", "activations 201.3 MB fp32"),
        (EVALUATES, "    hidden =", "evaluation; ", "temporaries 134.2 MB fp32"),
    ],
)
def test_the_peak_has_its_phase_and_line_whoever_writes_the_loop(
    script, line, place, held, tmp_path
):
    said = predicted(script, tmp_path)
    number = script[: script.index(line)].count("\n") + 1
    assert f"The peak: {place}line mine.py:{number}; " in said
    assert held in said
    if script is EVALUATES:  # of the model, and of the teacher that does not train
        assert "parameters 33.6 MB fp32" in said
        assert "The peak is in evaluation: take fewer inputs" in said


@pytest.mark.parametrize(
    ("script", "first", "how"),
    [
        (LOGITS, "logits. First compute the loss in parts", "cross_entropy over some tokens"),
        (BLOCKS.format(*LINEAR, "each(x)"), "First checkpoint", "checkpoint(block, x"),
        (
            BLOCKS.format(*LINEAR, "checkpoint(each, x, use_reentrant=False)"),
            "First take fewer",
            "several backward passes",
        ),
        (BLOCKS.format(*CONVOLUTION, "each(x)"), "First checkpoint", None),
    ],
)
def test_what_comes_first_is_what_a_script_does_not_do_yet(script, first, how, tmp_path):
    said = predicted(script, tmp_path, "--card", 2)
    assert first in said and "Nothing has to be saved" not in said
    assert how in said if how else "(lesson" not in said
    assert "assumption" not in said  # cuDNN's, for --details
    if script is LOGITS:  # what the model returns, its logarithms, and their gradient
        assert "logits, tokens x 8,192, 805.3 MB fp32" in said


def test_ranks_that_differ_are_told(tmp_path):
    said = predicted(RANKS.format(SETS_ITS_CARD), tmp_path, "--devices", 4)
    assert "Ranks differ" in said and "for rank 3" in said
    assert "of the ranks between them, emulated-gpu run --devices 4" in said
    # Four layers, and their gradients.
    assert "parameters 1.07 GB" in said


def test_ranks_on_one_card_add_up(tmp_path):
    """A weight of the first rank, its gradient and a new one, four times: each alone would fit."""
    said = predicted(RANKS.format(""), tmp_path, "--devices", 4, "--card", 8)
    gb = float(re.search(r"needs ([\d.]+) GB", said)[1])
    assert gb == pytest.approx(
        4 * (3 * 8192 * 8193 * 4 / 1e9 + set_aside(4)), rel=0.02
    )  # and workspaces
    assert "All 4 ranks use cuda:0" in said and "it does not fit" in said


def test_without_a_network_texts_have_tokens(tmp_path, monkeypatch):
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    # A name that no server has: https://www.rfc-editor.org/rfc/rfc2606
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    said = predicted(HUGGING_FACE, tmp_path, "--details")
    assert "mine.py:5 the tokenizer is missing" in said
    assert "8 x 64" in said and "8 texts per update" in said
    assert "mine.py:5 the configuration of distilbert-base-uncased is known by its name" in said
