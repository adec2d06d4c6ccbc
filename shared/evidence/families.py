"""Which families of language models can be predicted: `python -m shared.evidence.families`.

Simulates a small model of each family and stores what came of it, for the table on page 11.
"""

import json
import tempfile
from pathlib import Path

import transformers

from shared.cli import Parser, UserError
from shared.predict.jobs import Wanted, call, run_jobs
from shared.predict.simulation import predict
from shared.records import scripts, stored
from shared.records.record import versions
from shared.records.scripts import ROOT
from shared.records.writing import write_text
from shared.text.cli import TASK

# Most families know these names of sizes, or have others for the same.
USUAL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
LIKE_ROBERTA = {"max_position_embeddings": 66, "pad_token_id": 1}
LIKE_LLAMA = {"num_key_value_heads": 2}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
OF_DEBERTA_V3 = {"relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm"}
OF_DEBERTA_V3 |= {"share_att_key": True, "pos_att_type": ["p2c", "c2p"]}
OF_DEBERTA_V3 |= {"position_biased_input": False, "type_vocab_size": 0}
FAMILIES = {
    "BERT": ("Bert", {}),
    "RoBERTa": ("Roberta", LIKE_ROBERTA),
    "DeBERTa-v3": ("DebertaV2", OF_DEBERTA_V3),
    "ELECTRA": ("Electra", {"embedding_size": 32}),
    "ALBERT": ("Albert", {"embedding_size": 16}),
    "DistilBERT": ("DistilBert", {"hidden_dim": 64}),
    "ModernBERT": (
        "ModernBert",
        {"local_attention": 16, "cls_token_id": 1, "sep_token_id": 2, **ENDS},
    ),
    "XLM-R": ("XLMRoberta", LIKE_ROBERTA),
    # Such small blocks that it does not take ordinary attention.
    "BigBird": ("BigBird", {"block_size": 2, "num_random_blocks": 1}),
    "Longformer": ("Longformer", {"attention_window": 16, **LIKE_ROBERTA}),
    "T5": ("T5", {"d_kv": 8, "d_ff": 64, "num_decoder_layers": 1, "decoder_start_token_id": 0}),
    "BART": (
        "Bart",
        {f"{part}_layers": 1 for part in ("encoder", "decoder")}
        | {f"{part}_attention_heads": 4 for part in ("encoder", "decoder")}
        | {f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")},
    ),
    "GPT-2": ("GPT2", ENDS),
    "OPT": ("OPT", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "BLOOM": ("Bloom", {}),
    "Falcon": ("Falcon", {}),
    "Llama": ("Llama", LIKE_LLAMA),
    "Mistral": ("Mistral", LIKE_LLAMA),
    "Mixtral": ("Mixtral", {**LIKE_LLAMA, "num_local_experts": 4}),
    "Gemma-2": ("Gemma2", {**LIKE_LLAMA, "head_dim": 8}),
    "Qwen3": ("Qwen3", {**LIKE_LLAMA, "head_dim": 8}),
    "Phi-3": ("Phi3", {**LIKE_LLAMA, **ENDS}),
}
SCRIPTS = [name for name in scripts.stages() if name not in scripts.ladder()]
TOKENS = 32


def small(family):
    """Returns the transformers.PreTrainedConfig of a family's small model."""
    name, sizes = FAMILIES[family]
    return getattr(transformers, f"{name}Config")(vocab_size=200, **USUAL | sizes)


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


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    of_each = run_jobs([(outcomes, script, FAMILIES) for script in SCRIPTS])
    found = {"versions": versions(TASK), "outcomes": dict(zip(SCRIPTS, of_each))}
    write_text(stored.FAMILIES, json.dumps(found, indent=1) + "\n")
    print(stored.FAMILIES.relative_to(ROOT))


if __name__ == "__main__":
    main()
