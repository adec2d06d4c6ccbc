"""Which families of language models can be predicted: `python -m shared.evidence.families`.

Simulates a small model of each family and stores what came of it, for the table on page 11.
"""

import json
import tempfile
from pathlib import Path

import transformers

from shared.cli import Parser, UserError, run
from shared.common.files import writable
from shared.predict.jobs import Wanted, call, run_jobs
from shared.predict.simulation import predict
from shared.records import scripts, stored
from shared.records.machine import versions
from shared.records.scripts import ROOT
from shared.text.task import TASK

WIDTH, HEADS, POSITIONS = 32, 4, 64
# What most families call the sizes; the others have names of their own.
USUAL = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
}
LIKE_ROBERTA = {**USUAL, "max_position_embeddings": POSITIONS + 2, "pad_token_id": 1}
LIKE_LLAMA = {**USUAL, "num_key_value_heads": 2}
OF_DEBERTA_V3 = {
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
FAMILIES = {
    "BERT": ("Bert", USUAL),
    "RoBERTa": ("Roberta", LIKE_ROBERTA),
    "DeBERTa-v3": ("DebertaV2", {**USUAL, **OF_DEBERTA_V3}),
    "ELECTRA": ("Electra", {**USUAL, "embedding_size": WIDTH}),
    "ALBERT": ("Albert", {**USUAL, "embedding_size": WIDTH // 2}),
    "DistilBERT": (
        "DistilBert",
        {
            "dim": WIDTH,
            "n_layers": 1,
            "n_heads": HEADS,
            "hidden_dim": 2 * WIDTH,
            "max_position_embeddings": POSITIONS,
        },
    ),
    "ModernBERT": (
        "ModernBert",
        {**USUAL, "local_attention": 16, "bos_token_id": 1, "eos_token_id": 2}
        | {"cls_token_id": 1, "sep_token_id": 2},
    ),
    "XLM-R": ("XLMRoberta", LIKE_ROBERTA),
    # Such small blocks that it does not take ordinary attention.
    "BigBird": ("BigBird", {**USUAL, "block_size": 2, "num_random_blocks": 1}),
    "Longformer": ("Longformer", {**LIKE_ROBERTA, "attention_window": 16}),
    "T5": (
        "T5",
        {"d_model": WIDTH, "d_kv": 8, "d_ff": 2 * WIDTH, "num_layers": 1, "num_heads": HEADS}
        | {"decoder_start_token_id": 0},
    ),
    "BART": (
        "Bart",
        {"d_model": WIDTH, "max_position_embeddings": POSITIONS}
        | {f"{part}_layers": 1 for part in ("encoder", "decoder")}
        | {f"{part}_attention_heads": HEADS for part in ("encoder", "decoder")}
        | {f"{part}_ffn_dim": 2 * WIDTH for part in ("encoder", "decoder")},
    ),
    "GPT-2": (
        "GPT2",
        {"n_embd": WIDTH, "n_layer": 1, "n_head": HEADS, "n_positions": POSITIONS}
        | {"bos_token_id": 1, "eos_token_id": 2},
    ),
    "OPT": ("OPT", {**USUAL, "ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH}),
    "BLOOM": ("Bloom", {"hidden_size": WIDTH, "n_layer": 1, "n_head": HEADS}),
    "Falcon": ("Falcon", USUAL),
    "Llama": ("Llama", LIKE_LLAMA),
    "Mistral": ("Mistral", LIKE_LLAMA),
    "Mixtral": ("Mixtral", {**LIKE_LLAMA, "num_local_experts": 4}),
    "Gemma-2": ("Gemma2", {**LIKE_LLAMA, "head_dim": 8}),
    "Qwen3": ("Qwen3", {**LIKE_LLAMA, "head_dim": 8}),
    "Phi-3": ("Phi3", {**LIKE_LLAMA, "bos_token_id": 1, "eos_token_id": 2}),
}
SCRIPTS = [name for name in scripts.stages() if name not in scripts.ladder()]
TOKENS = 32


def small(family):
    """Returns the transformers.PreTrainedConfig of a family's small model."""
    name, sizes = FAMILIES[family]
    return getattr(transformers, f"{name}Config")(vocab_size=200, **sizes)


def outcomes(script, families):
    """Simulates an update of a script with each family's small model, one after the other.

    Returns:
        {family: None if that works, else one line that says why not}.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            model = Path(folder) / family
            small(family).save_pretrained(model)
            wanted = Wanted("gpu", "full", str(model), max_length=TOKENS, updates=1)
            try:
                found[family] = call(predict, script, wanted) and None
            except UserError as error:
                found[family] = str(error).replace(str(model), family)
    return found


def simulated(families=tuple(FAMILIES)):
    """Returns what came of every script's simulations: {script: what outcomes() returns}."""
    jobs = [(outcomes, script, families) for script in SCRIPTS]
    return dict(zip(SCRIPTS, run_jobs(jobs)))


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    writable(stored.FAMILIES)
    found = {"versions": versions(TASK), "outcomes": simulated()}
    stored.FAMILIES.write_text(json.dumps(found, indent=1) + "\n")
    print(stored.FAMILIES.relative_to(ROOT))


if __name__ == "__main__":
    run(main)
