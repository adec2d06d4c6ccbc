"""Promise: 11_llm trains any Hugging Face model, sharded or not, to the same result.

Buffers that no checkpoint holds are loaded, padding has no effect, and the blocks are found.
"""

import pytest
import torch
import transformers
from conftest import TEXT, read_json, run
from helpers.single_process import losses, one_update
from helpers.small_models import LLAMA
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from shared.lab.records import scripts
from shared.text import models
from shared.text.tokenizer import new_tokenizer

BEFORE = scripts.get(TEXT[0])
# No dropout, under the names that the families below have for its rates.
STILL = dict.fromkeys(["hidden_dropout", "attention_dropout", "hidden_dropout_prob"], 0.0)
STILL |= {"attention_probs_dropout_prob": 0.0, "use_cache": False}
# An encoder, a decoder with rotary embeddings and grouped-query attention, one with ALiBi.
FAMILIES = {
    "Bert": LLAMA,
    "Qwen3": {**LLAMA, "num_key_value_heads": 2, "head_dim": 8},
    "Bloom": {"vocab_size": 200, "hidden_size": 32, "n_layer": 3, "n_head": 4},
}
# Each family with the number of blocks of its default model.
KINDS = (
    "Albert:1 Bart:24 Bert:12 BigBird:12 Bloom:2 DebertaV2:24 DistilBert:6 Electra:12 Funnel:12 "
    "GPT2:12 Gemma3Text:26 Llama:32 Mistral:32 Mixtral:32 ModernBert:22 OPT:12 Qwen2:32 Qwen3:32 "
    "Roberta:12 T5:12 XLNet:24"
).split()


def small(family, kind=AutoModelForSequenceClassification):
    """Return a model with weights so large that a wrong position or mask shows."""
    options = {**FAMILIES[family], **STILL, "pad_token_id": 0}
    torch.manual_seed(0)
    model = kind.from_config(getattr(transformers, f"{family}Config")(**options))
    for p in (p for p in model.parameters() if p.ndim > 1):
        torch.nn.init.normal_(p, std=0.2)
    return model


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Observations of four processes, by model and precision; the models' folder; their texts."""
    folder, out = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("out") / "seen.json"
    table, kinds = out.with_name("table.csv"), ("bad {},down", "good {},up")
    rows = [kinds[i % 2].format(f"{'word ' * (i % 7)}{i}") for i in range(60)]
    table.write_text("\n".join(["text,label", *rows]))  # of unequal length
    for family in FAMILIES:
        small(family).save_pretrained(folder / family)
        new_tokenizer(rows, 200).save_pretrained(folder / family)
    run("tests/helpers/sharded_text.py", folder, table, out)
    return read_json(out), folder, table


@pytest.mark.parametrize("family", FAMILIES)
def test_loads_what_from_pretrained_loads(sharded, family):
    """Also buffers that no checkpoint holds: positions, rotary frequencies in full precision."""
    for rank in sharded[0]:
        for precision, dtype in {"bf16-true": "torch.bfloat16", "32-true": "torch.float32"}.items():
            seen = rank[f"{family} {precision}"]
            wrong = f"11_llm/train, {family} in {precision}"
            for what in ("same logits", "all sharded", "same file"):
                assert seen[what], f"{wrong}: not {what}"
            assert seen["dtypes"] == [dtype], f"{wrong}: weights in {seen['dtypes']}"


@pytest.mark.parametrize("family", FAMILIES)
def test_sharded_is_as_one_device(sharded, family):
    """Four processes, each with texts and padding of its own, reach the losses of before.py."""
    module, built = BEFORE.load(), []
    build = module.build
    module.build = lambda *args: built.append(build(*args)) or built[0]
    of_family = ["--model", str(sharded[1] / family), "--data", str(sharded[2])]
    found, _ = losses(module, *of_family, "--max-steps", "4")
    model = built[0][0]
    assert found[0] != pytest.approx(found[-1], rel=1e-3)
    several = sharded[0][0][f"{family} 32-true"]["losses"]
    wrong = f"11_llm/train: losses of four processes are {several}, those of before.py {found}"
    assert several == pytest.approx(found, rel=1e-4), wrong
    # The model that four processes gathered and saved is the one trained here.
    load = AutoModelForSequenceClassification.from_pretrained
    saved, info = load(sharded[1] / f"{family}-trained", output_loading_info=True)
    assert not any(info[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched"))
    assert saved.config.id2label == {0: "down", 1: "up"}
    apart, moved = (
        sum((a - b).abs().sum() for a, b in zip(other.parameters(), model.parameters()))
        for other in (saved, load(sharded[1] / family))
    )
    assert apart < 0.01 * moved  # for gradients near 0, Adam steps along rounding errors


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_and_micro_batches_change_nothing(family, batch=7):
    """Same gradients from a whole batch, micro-batches (the last one partial), more padding."""
    model = small(family).double()
    lengths = torch.tensor([3, 24, 9, 2, 17, 24, 5])
    input_ids = torch.arange(6, 6 + 24 * batch).view(batch, 24)
    input_ids *= torch.arange(24) < lengths[:, None]
    labels = torch.arange(batch) % 2
    padded = torch.cat([input_ids, torch.zeros(batch, 8, dtype=torch.long)], 1)
    tokens = {"input_ids": input_ids, "attention_mask": (input_ids > 0).long()}
    logits = model(**tokens).logits
    loss = torch.nn.functional.cross_entropy(logits, labels)
    grads = torch.autograd.grad(loss, [*model.parameters()])
    wanted = [loss.detach().float(), logits.detach().float(), *grads]  # as Fabric returns them
    assert max(value.abs().max() for value in wanted[2:]) > 1e-3
    for name in TEXT:
        for what, ids in {"texts": input_ids, "texts with more padding": padded}.items():
            tokens = {"input_ids": ids, "attention_mask": (ids > 0).long()}
            kept = one_update(name, model, tokens, labels)
            wrong = (
                f"{name}: loss, logits or gradients of {batch} {what} are not those of one batch"
            )
            found = [kept.loss, kept.logits, *kept.grads]
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6, msg=wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_found_in_any_model(kind):
    name, n = kind.split(":")
    with torch.device("meta"):
        config = getattr(transformers, f"{name}Config")()
        model = AutoModelForSequenceClassification.from_config(config)
    found = models.blocks(model)
    assert len(found) == int(n)
    inside = {p for block in found for p in block.parameters()}
    outside = sum(p.numel() for p in model.parameters() if p not in inside)
    tables = [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    # Outside the blocks there are embeddings, and little else.
    assert outside <= sum(m.weight.numel() for m in tables) + 0.08 * model.num_parameters()


@pytest.mark.parametrize("family", ["Qwen3", "Bloom"])
def test_the_causal_loss_is_that_of_hugging_face(family):
    """The loss of next-token prediction, computed at once or in chunks."""
    ids = torch.randint(6, 200, (12, 17), generator=torch.Generator().manual_seed(1))
    tokens, labels = {"input_ids": ids[:, :-1]}, ids[:, 1:]
    for name in ("causal", "causal_chunked"):
        model = small(family, AutoModelForCausalLM).double()
        theirs = model(input_ids=ids, labels=ids).loss.detach()  # in fp32
        ours = one_update(f"11_llm/{name}", model, tokens, labels).loss
        torch.testing.assert_close(ours.float(), theirs, rtol=1e-5, atol=0)
