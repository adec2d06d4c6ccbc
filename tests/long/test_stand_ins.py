"""Promise: a script without its downloads, or its launcher, runs with stand-ins of the true sizes.

Sizes are those on the pages of models and data sets.
"""

import pytest
from conftest import read_json, run
from helpers.emulated import NEEDS
from helpers.own import emulated, predicted

pytestmark = NEEDS

# By the pages of the hub; of BERT, the model without a head.
CONFIGURATIONS = """
import torch
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM,
                          AutoModelForImageClassification, AutoTokenizer)
def count(kind, name):
    with torch.device("meta"):
        model = kind.from_config(AutoConfig.from_pretrained(name))
    print(name, f"{sum(p.numel() for p in model.parameters()):,}")
count(AutoModel, "google-bert/bert-base-uncased")
for name in ("gpt2", "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B"):
    count(AutoModelForCausalLM, name)
count(AutoModelForImageClassification, "google/vit-base-patch16-224")
for kind in (AutoConfig, AutoTokenizer):
    try:
        kind.from_pretrained("nobody/has-this")
    except OSError:
        print("unknown")
torch.ones(1).cuda()
"""
PARAMETERS = {
    "google-bert/bert-base-uncased": "109,482,240",
    "gpt2": "124,439,808",
    "meta-llama/Llama-3.2-1B": "1,235,814,400",
    "Qwen/Qwen2.5-0.5B-Instruct": "494,032,768",
    "Qwen/Qwen3-0.6B": "596,049,920",
    "google/vit-base-patch16-224": "86,567,656",
}
# A folder as of a pipeline of diffusers: 123,060,480 parameters, by CLIP's text model.
SUBFOLDER = """
import tempfile, torch
from transformers import AutoTokenizer, CLIPTextConfig, CLIPTextModel
CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
    num_attention_heads=12).save_pretrained((folder := tempfile.mkdtemp()) + "/text_encoder")
assert len(AutoTokenizer.from_pretrained(folder, subfolder="tokenizer")) == 49408
options = {"subfolder": "text_encoder", "variant": "fp16", "use_safetensors": True}
model = CLIPTextModel.from_pretrained(folder, **options).cuda()
print(sum(p.numel() for p in model.parameters()))
"""
TIED = """
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
with safe_open(f"{model.name_or_path}/model.safetensors", "pt") as file:
    assert "lm_head.weight" not in file.keys()
assert model.lm_head.weight is model.transformer.wte.weight
"""
ROWS = """
import torch
from datasets import load_dataset
imdb = load_dataset("stanfordnlp/imdb")
assert {name: len(split) for name, split in imdb.items()} == dict.fromkeys(
    ("train", "test", "unsupervised"), 1000)
assert imdb["train"].features["label"].num_classes == 2
lengths = [len(text.split()) for text in imdb["train"]["text"]]
assert abs(sum(lengths) / 1000 - 230) < 10
# In most batches of 16, the longest review of imdb has more than 512 tokens.
assert sum(max(lengths[i:i + 16]) > 400 for i in range(0, 1000, 16)) > 50
for split, rows in {"train": 1000, "train[:10%]": 100, "test[80%:]": 200, "test[-5:]": 5,
                    "train+test": 2000, "train[100:150]": 50}.items():
    assert len(load_dataset("imdb", split=split)) == rows, split
both = load_dataset("imdb", split=["train[:80%]", "train[80%:]"])
assert [len(part) for part in both] == [800, 200]
assert both[0][0] == imdb["train"][0] and both[1][0] == imdb["train"][800]
first = next(iter(load_dataset("imdb", split="train", streaming=True)))
assert first == imdb["train"][0]
mrpc = load_dataset("glue", "mrpc")
assert set(mrpc) == {"train", "validation", "test"}
assert mrpc["train"].column_names == ["sentence1", "sentence2", "label", "idx"]
assert mrpc["train"][7]["idx"] == 7
row = load_dataset("cifar10", split="test")[3]
assert row["img"].size == (32, 32) and row["img"].mode == "RGB" and row["label"] == 3
for name, split in (("imdb", "validation"), ("nobody/has-this", "train")):
    try:
        load_dataset(name, split=split)
    except Exception as error:
        print("refused", type(error).__name__)
torch.ones(1).cuda()
"""
METRICS = """
import evaluate, torch
accuracy = evaluate.load("accuracy")
accuracy.add_batch(predictions=[1], references=[1])
assert accuracy.compute() == {"accuracy": 0}
several = evaluate.load("glue", "mrpc").compute(predictions=[1], references=[1])
assert several["f1"] == several["accuracy"] == 0
torch.ones(1).cuda()
"""
# As torchrun would start it, but nothing has; and packages ask for RANK to find out.
ONE_PROCESS = """
import os, torch
import torch.distributed as dist
assert "RANK" not in os.environ and os.environ.get("WORLD_SIZE") is None
assert dist.get_rank() == 0 and dist.get_world_size() == 1
dist.barrier()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
{}
assert dist.get_world_size() == 1 and dist.is_initialized()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
STARTS = (
    'dist.init_process_group("nccl")',
    'dist.init_process_group("nccl", init_method="env://")',
    'dist.init_process_group("nccl", rank=int(os.environ["RANK"]), '
    'world_size=int(os.environ["WORLD_SIZE"]))',
    'os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "{port}"\n'
    'dist.init_process_group("nccl", rank=0, world_size=1)',
)
# Its loader has 100 batches, of which it is given three.
LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from {} import Model
loader = DataLoader(TensorDataset(torch.ones(800, 64)), batch_size=8)
model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(loader)
assert len(loader) == len(batches) == 100
for n, (x,) in enumerate(batches):
    model(x.cuda()).sum().backward()
    optimizer.step()
assert n == 2
print("of", __name__)
"""
MODEL = """
import torch
class Model(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(64, 64))
"""


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Let the hub not be reached, by a name that no server has, and its cache be empty.

    https://www.rfc-editor.org/rfc/rfc2606
    """
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))


def test_models_that_are_known_by_name_have_their_sizes(offline, tmp_path):
    said = emulated(CONFIGURATIONS, tmp_path)
    for name, parameters in PARAMETERS.items():
        assert f"{name} {parameters}\n" in said
        assert f"the configuration of {name} is known by its name" in said  # as `run` says, too
    assert said.count("unknown\n") == 2


def test_a_model_in_a_subfolder_has_weights_and_a_tokenizer(offline, tmp_path):
    said = emulated(SUBFOLDER, tmp_path)
    assert "123060480\n" in said
    assert "weights are not downloaded" in said and "the tokenizer is missing" in said


def test_tied_weights_are_once_in_a_file(offline, tmp_path):
    """With both, transformers 5.8 makes two of them: 0.9 GB more for Qwen2.5-1.5B in 4 bits."""
    emulated(TIED, tmp_path)


def test_data_sets_have_splits_and_columns(offline, tmp_path):
    said = emulated(ROWS, tmp_path)
    assert "mine.py:4 the data set stanfordnlp/imdb is missing; 1,000 rows of noise" in said
    assert said.count("refused") == 2 and "refused ValueError" in said


def test_metrics_are_0(tmp_path):
    package = tmp_path / "evaluate"
    package.mkdir()
    (package / "__init__.py").write_text("from .loading import load\n")
    (package / "loading.py").write_text("def load(*_, **__):\n    raise FileNotFoundError()\n")
    assert "the metric accuracy is missing; it is 0 here" in emulated(METRICS, tmp_path)


@pytest.mark.parametrize("start", STARTS)
def test_without_a_launcher_there_is_one_process(start, tmp_path):
    script = ONE_PROCESS.format(start.format(port=29_533))
    said = predicted(script, tmp_path)
    assert "mine.py:5 no launcher has started it, so it is the only process" in said
    assert "Linear, inputs of 8 x 64" in said


def test_a_module_or_a_script_in_a_folder_is_run_from_the_folder_above(tmp_path):
    for folder, imported in (("package", "package.models"), ("tools", "models")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(LOADER.format(imported))
        (tmp_path / folder / "models.py").write_text(MODEL)
    for *words, name in (("-m", "package.train"), ("tools/train.py",)):
        said = run("-m", "emulated_gpu", "why", *words, name, cwd=tmp_path)
        assert "of __main__" in said and "Model, inputs of 8 x 64" in said
        assert f"\n{name}: Model" in said
        assert "; line train.py:11; " in said


def test_more_memory_than_wanted_is_exit_code_3(tmp_path):
    script = "import torch\ntorch.ones(1 << 28, device='cuda')\n"  # 1.07 GB in fp32
    file = tmp_path / "why.json"
    said = predicted(script, tmp_path, "--max-gb", 1, "--json", file, code=3)
    assert "GB more than --max-gb 1" in said
    assert read_json(file)["train"]["device_peak_gb"] == pytest.approx(1.0737, rel=1e-3)
    assert "more than" not in predicted(script, tmp_path, "--max-gb", 3)
