"""Promise: Python code that comes with a model never runs without --trust-remote-code."""

import json

import pytest
from conftest import run
from safetensors.torch import save_file
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from shared.text.tokenizer import new_tokenizer

TINY = ("--preset", "tiny", "--max-steps", 1)
CODE = """open({!r}, "a").close()
from transformers import DistilBertConfig, DistilBertForSequenceClassification
from transformers import PreTrainedTokenizerFast as Tokenizer
class Config(DistilBertConfig): model_type = "mine"
class Model(DistilBertForSequenceClassification): config_class = Config
"""
COMMANDS = {
    "11_llm/before.py --limit 40 --model": TINY,
    "11_llm/train.py --devices 1 --limit 40 --model": TINY,
    "11_llm/causal.py --model": TINY,
    "11_llm/lora.py --limit 40 --model": TINY,
    "11_llm/classify.py": ["a text"],
    "11_llm/generate.py": ["a text"],
    "-m shared predict 11_llm/before --model": [],
    "-m shared ladder 11_llm/before --data fake --no-pretrained --out {} --model": TINY,
}
ADAPTER = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 2, "target_modules": ["q_lin"]}
# Kinds of folders, and the exit codes of the commands: 2 where they would need the code, 1 where
# PEFT's names of weights are not those of the model alone.
KINDS = {"known type": "00200200", "new type": "22222222", "adapter": "11210200"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of models whose code makes a file "ran" beside them: {kind: folder}."""
    root = tmp_path_factory.mktemp("foreign")
    return {kind: made(root / kind) for kind in KINDS}


def made(folder):
    config = DistilBertConfig(dim=32, hidden_dim=64, n_layers=2, n_heads=2, vocab_size=4096)
    DistilBertForSequenceClassification(config).save_pretrained(folder)
    new_tokenizer(["a text"] * 9, 100).save_pretrained(folder)
    (folder / "own.py").write_text(CODE.format(str(folder.with_name("ran"))))
    own = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    own |= {f"AutoModelFor{what}": "own.Model" for what in ("SequenceClassification", "CausalLM")}
    change(folder / "config.json", auto_map=own)
    if folder.name == "new type":
        change(folder / "config.json", model_type="mine")
    if folder.name == "known type":
        its = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Tokenizer"]}}
        change(folder / "tokenizer_config.json", **its)
    if folder.name == "adapter":
        base = {"base_model_name_or_path": str(folder.with_name("new type"))}
        (folder / "adapter_config.json").write_text(json.dumps(ADAPTER | base))
        save_file({}, folder / "adapter_model.safetensors")
    return folder


def change(file, **fields):
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_code_runs_only_if_it_was_asked_for(command, kind, folders, tmp_path):
    code = int(KINDS[kind][[*COMMANDS].index(command)])
    run(*command.format(tmp_path).split(), folders[kind], *COMMANDS[command], code=code)
    assert not folders[kind].with_name("ran").exists()


def test_with_the_option_a_line_says_whose_code_runs(folders):
    asked = [*TINY, "--limit", 40, "--trust-remote-code"]
    printed = run("11_llm/before.py", "--model", folders["new type"], *asked)
    assert f"Python code that comes with {folders['new type']} may run" in printed
    marker = folders["new type"].with_name("ran")
    assert marker.exists()
    marker.unlink()
