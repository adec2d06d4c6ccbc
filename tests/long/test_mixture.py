"""Promise: a mixture of experts learns by its router's loss, too; routing costs no memory."""

import pytest
import torch
from helpers.single_process import losses, one_update
from helpers.small_models import LLAMA
from transformers import AutoModelForCausalLM, MixtralConfig, OlmoeConfig, Qwen3MoeConfig
from transformers.models.olmoe.modeling_olmoe import OlmoeTopKRouter

from shared.lab.records import scripts

MOE = "11_llm/moe"
FEW = {"num_experts": 8, "moe_intermediate_size": 32}
CHOICES = {  # of 8 experts, two by each token
    "balanced": lambda n: torch.arange(2 * n).view(n, 2) % 8,
    "worst": lambda n: torch.arange(2).repeat(n, 1),
}


@pytest.mark.parametrize("make_config", [MixtralConfig, OlmoeConfig, Qwen3MoeConfig])
def test_the_loss_is_that_of_hugging_face(make_config):
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
