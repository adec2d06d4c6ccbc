"""Promise: GRPO makes completions with a better reward likelier; in chunks it does the same."""

import pytest
import torch
from helpers.emulated import NEEDS
from helpers.predictions import assert_same_tensors, predict_all
from helpers.single_process import Spy, alone, one_update
from helpers.small_models import LLAMA
from transformers import AutoModelForCausalLM, LlamaConfig

from shared.lab.records import scripts
from shared.text.roads import rewards

ROADS = WHOLE, CHUNKED = "11_llm/grpo", "11_llm/grpo_chunked"
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


@pytest.mark.parametrize("name", ROADS)
def test_better_completions_become_likelier(name, texts):
    script, policy, after = updated(name, texts)
    before = script.log_probs(policy, texts, N).sum(1).detach()
    with torch.no_grad():
        for p, grad in zip(policy.parameters(), after.grads):
            p -= 0.1 * grad
    change = script.log_probs(policy, texts, N).sum(1).detach() - before
    reward = rewards.reward(texts[:, -N:])
    assert change[reward == reward.max()].mean() > change[reward == reward.min()].mean() + 0.01


def test_in_chunks_it_is_the_same(texts):
    (_, _, whole), (_, _, chunked) = (updated(name, texts) for name in ROADS)
    assert max(g.abs().max() for g in whole.grads) > 1e-3
    torch.testing.assert_close(chunked.grads, whole.grads, rtol=1e-4, atol=1e-6)


@NEEDS
def test_the_emulated_gpu_holds_the_same_tensors():
    predicted = predict_all([*ROADS], "tiny")
    for name in ROADS:
        assert_same_tensors(name, alone(name)[1], predicted[name])
