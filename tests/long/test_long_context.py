"""Promise: sharded, in parts and in tiles, from the host or not, a text teaches what it taught."""

import pytest
import transformers
from conftest import run

from shared.lab.predict import cases
from shared.lab.records import scripts
from shared.lab.records.reading import read

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96}
SAME = ["--preset", "tiny", "--data", "fake", "--no-pretrained", "--max-steps", 3]
ADAM = "torch.optim.Adam(model.parameters(), lr=LR[args.preset]{})"
# Adam would hide a wrong scale of the gradients.
SGD = "torch.optim.SGD(model.parameters(), lr=20.0)"
ONE = ("BATCH_SIZE = 12", "BATCH_SIZE = 1")  # text per update


def trained(script, folder):
    """Run a changed script for three updates, and return its record."""
    copy = folder / "11_llm" / f"{script.file}.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(script.source)
    config = transformers.LlamaConfig(**SIZES, intermediate_size=64, num_key_value_heads=4)
    config.save_pretrained(folder / "model")
    where = ["--model", folder / "model", "--record", folder / "records.jsonl"]
    run(copy, *SAME, *where, "--max-length", 32)
    return read(folder / "records.jsonl")[0][0]


def test_the_techniques_leave_the_losses_of_one_process(tmp_path):
    changes = [(ADAM.format(""), SGD), ONE]
    whole = trained(scripts.changed("11_llm/causal", changes), tmp_path / "whole")
    assert whole["last_loss"] != pytest.approx(whole["first_loss"], rel=1e-3)
    changes = [(ADAM.format(", fused=True"), SGD), ONE]
    kept = []
    # With shards on the host it is all that there is.
    every = cases.of("long_context")
    steps = [c.edits for c in every if (c.settings.devices, c.settings.max_length) == (8, 8_192)]
    for n, techniques in enumerate([*steps[::2], every[-1].edits]):
        edits = ["shards, with Adam", *techniques]
        case = cases.case(script="11_llm/context_parallel", edits=edits, replaced=changes)
        parts = trained(case.changed_script, tmp_path / str(n))
        assert (parts["world_size"], parts["batch_size"]) == (4, 1)
        for key in ("first_loss", "last_loss", "test_perplexity"):
            assert parts[key] == pytest.approx(whole[key], rel=1e-5), (techniques, key)
        kept.append(parts["train"]["breakdown_gb"]["activations"])
    plain, checkpointed, _ = kept
    assert checkpointed < plain < 0.4 * whole["train"]["breakdown_gb"]["activations"]
