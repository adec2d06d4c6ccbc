"""Promise: side roads of language models learn what they should: experts, rewards, captions.

A mixture of experts learns by its router's loss, too, and routing costs no memory. GRPO makes
completions with a better reward likelier; in chunks it does the same. An image becomes pixels /
(patch × merge)² tokens, and only captions are learned.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from helpers.emulated import NEEDS
from helpers.predictions import assert_same_tensors, predict_all
from helpers.single_process import Spy, alone, losses, one_update
from helpers.small_models import LLAMA
from helpers.today import some
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    LlamaConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen3MoeConfig,
)
from transformers.models.olmoe.modeling_olmoe import OlmoeTopKRouter

from shared.lab.records import scripts, stored
from shared.text.roads import captions, rewards

MOE = "11_llm/moe"
FEW = {"num_experts": 8, "moe_intermediate_size": 32}
CHOICES = {  # of 8 experts, two by each token
    "balanced": lambda n: torch.arange(2 * n).view(n, 2) % 8,
    "worst": lambda n: torch.arange(2).repeat(n, 1),
}


@pytest.mark.parametrize("make_config", [MixtralConfig, OlmoeConfig, Qwen3MoeConfig])
def test_the_loss_of_a_mixture_is_that_of_hugging_face(make_config):
    torch.manual_seed(1)
    config = make_config(**LLAMA, **FEW, num_key_value_heads=2, router_aux_loss_coef=0.5)
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager").double()
    ids = torch.randint(6, 200, (12, 17))
    tokens, labels = {"input_ids": ids[:, :-1]}, ids[:, 1:].contiguous()
    theirs = {"labels": labels, "shift_labels": labels, "output_router_logits": True}
    output = model(**tokens, **theirs)
    output.loss.backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    ours = one_update(MOE, model, tokens, labels)
    assert output.aux_loss > 0.1
    whole = ours.loss + 0.5 * output.aux_loss.detach()  # the reported loss is without it
    torch.testing.assert_close(whole.float(), output.loss.detach().float(), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.grads, grads, rtol=1e-4, atol=1e-6)


def test_routing_changes_no_peak(monkeypatch):
    forward, trains = OlmoeTopKRouter.forward, []
    for choose in CHOICES.values():

        def routed(router, hidden, choose=choose):
            logits, scores, chosen = forward(router, hidden)
            return logits, scores, choose(len(chosen))

        monkeypatch.setattr(OlmoeTopKRouter, "forward", routed)
        seen, record = losses(scripts.get(MOE).load(), "--max-steps", "2")
        trains.append((seen, record["train"]))
    (balanced, train), (worst, other) = trains
    assert balanced != worst and train == other


OF_REWARDS = "11_llm/grpo", "11_llm/grpo_chunked"
N = 4  # tokens of a completion


@pytest.fixture
def texts(monkeypatch):
    """Two prompts with eight completions each; a longer run of token 7 has the larger reward."""
    torch.manual_seed(0)
    written = torch.randint(20, 60, (16, 8))
    for row in range(16):
        written[row, 4 : 4 + row % 4] = 7
    monkeypatch.setattr(rewards, "completed", lambda *_: written)
    monkeypatch.setattr(rewards, "FREQUENT", 8)
    # The scripts keep it there: the model as it was.
    monkeypatch.setattr(Spy, "reference", model().double(), raising=False)
    return written


def model():
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA)).eval()


def updated(name, texts):
    """Return a model after one update by a script's train_step()."""
    policy = model()
    script = scripts.get(name).load()
    return script, policy, one_update(name, policy, {"input_ids": texts[::8]}, texts[::8])


@pytest.mark.parametrize("name", OF_REWARDS)
def test_better_completions_become_likelier(name, texts):
    script, policy, after = updated(name, texts)
    before = script.log_probs(policy, texts, N).sum(1).detach()
    with torch.no_grad():
        for p, grad in zip(policy.parameters(), after.grads):
            p -= 0.1 * grad
    change = script.log_probs(policy, texts, N).sum(1).detach() - before
    reward = rewards.reward(texts[:, -N:])
    assert change[reward == reward.max()].mean() > change[reward == reward.min()].mean() + 0.01


def test_in_chunks_rewards_teach_the_same(texts):
    (_, _, whole), (_, _, chunked) = (updated(name, texts) for name in OF_REWARDS)
    assert max(g.abs().max() for g in whole.grads) > 1e-3
    torch.testing.assert_close(chunked.grads, whole.grads, rtol=1e-4, atol=1e-6)


@NEEDS
def test_the_emulated_gpu_holds_the_tensors_of_rewards():
    (name,) = some("rewards", OF_REWARDS, 1)  # they write token by token, which takes long
    assert_same_tensors(name, alone(name)[1], predict_all([name], "tiny")[name])


IMAGES = "11_llm/images"
MARKS = {"vision_start_token_id": 196, "vision_end_token_id": 197}
MARKS |= {"image_token_id": 198, "video_token_id": 199}
VISION = {"depth": 2, "num_heads": 2, "patch_size": 4}
SIZES = {  # of the encoder, by names that differ
    Qwen2VLConfig: {"embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2},
    Qwen2_5_VLConfig: {"hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 64}
    | {"window_size": 16, "fullatt_block_indexes": [1]},
}


def captioner(make_config):
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0}
    text = {**LLAMA, "num_key_value_heads": 2, "rope_parameters": rope, "pad_token_id": 0}
    return make_config(text_config=text, vision_config=VISION | SIZES[make_config], **MARKS)


def examples(px):
    """Return three images with captions of different lengths."""
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(3, 3, px, px, generator=generator)
    return [*zip(images, ([5, 6, 7, 3], [8, 3], [9, 10, 3]))]


@pytest.mark.parametrize("make_config", SIZES)
def test_the_loss_of_captions_is_that_of_hugging_face(make_config):
    torch.manual_seed(1)
    config = captioner(make_config)
    model = AutoModelForImageTextToText.from_config(config).double()
    tokens, labels = captions.batch(config, examples(24))
    tokens["pixel_values"] = tokens["pixel_values"].double()
    theirs = model(**tokens, labels=labels, shift_labels=labels).loss
    theirs.backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    ours = one_update(IMAGES, model, tokens, labels)
    torch.testing.assert_close(ours.loss.float(), theirs.detach().float(), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.grads, grads, rtol=1e-4, atol=1e-6)
    names = [name for name, _ in model.named_parameters()]
    of_encoder = [grad for name, grad in zip(names, grads, strict=True) if "visual" in name]
    assert of_encoder and all(grad.abs().max() > 0 for grad in of_encoder)


@pytest.mark.parametrize("px", [8, 24, 40])
def test_an_image_becomes_so_many_tokens(px):
    config = captioner(Qwen2VLConfig)
    tokens, labels = captions.batch(config, examples(px))
    n = (px // (4 * 2)) ** 2
    assert ((tokens["input_ids"] == 198).sum(1) == n).all()
    assert len(tokens["pixel_values"]) == 3 * 4 * n  # patches, of which four are merged
    learned = [row[row != captions.NO_TARGET].tolist() for row in labels]
    assert learned == [[5, 6, 7, 3], [8, 3], [9, 10, 3]]
    assert tokens["input_ids"].shape == labels.shape == (3, 2 + n + 3)
    for row, of_caption, caption in zip(tokens["input_ids"], labels, learned):
        whole = [196, *[198] * n, 197, *caption]
        assert row[: len(whole) - 1].tolist() == whole[:-1]
        assert of_caption[n + 1 : len(whole) - 1].tolist() == caption


def test_the_perplexity_is_that_of_captions():
    config = captioner(Qwen2VLConfig)
    model = AutoModelForImageTextToText.from_config(config).eval()
    tokens, labels = captions.batch(config, examples(16))
    losses, _ = captions.TASK.outputs(model, tokens, labels)
    loss = model(**tokens, labels=labels, shift_labels=labels).loss
    whole, single = captions.TASK.new_metric(), captions.TASK.new_metric()
    whole.update(losses, None, labels)
    single.update(loss, None, labels)
    assert whole.compute().item() == pytest.approx(single.compute().item(), rel=1e-5)
    assert whole.compute().item() == pytest.approx(math.exp(loss.item()), rel=1e-5)


def test_images_are_as_large_as_the_length_allows():
    for length, side in ((17, 1), (19, 1), (20, 2), (512, 22), (1040, 32)):
        args = SimpleNamespace(model="Qwen/Qwen2-VL-2B-Instruct", pretrained=False)
        vars(args).update(trust_remote_code=False, task=captions.TASK, max_length=length, notes=[])
        captions.TASK.choose(args)
        assert args.image_px == side * 28


def test_digits_are_read():
    """Without images, five tokens of which one is one of ten digits: the fifth root of 10."""
    record = stored.measurements(stored.TINY_SIDE_ROADS)[IMAGES]
    assert 1 < record["test_perplexity"] < 1.3 < 10 ** (1 / 5)
