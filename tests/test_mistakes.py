"""Promise: a user's mistake ends in one line that names it and says how to correct it.

The exit code is 2, and there is no traceback.
"""

import importlib
import json
import re
import runpy
from types import SimpleNamespace
from urllib.error import URLError

import datasets
import pytest
import torch
from conftest import paint, run
from helpers.emulated import NO_COMPILER
from helpers.refusals import refused

from shared.images import cli
from shared.lab.records import scripts
from shared.memory import bf16
from shared.metrics import Accuracy, Meter
from shared.run import devices
from shared.run.cli import try_writing
from shared.run.errors import UserError

FSDP, BASELINE = "08_fsdp/train", "01_baseline/train"
# Script or command, options, and a part of the line.
MISTAKES = [
    (BASELINE, "--max-step 3", "unrecognized arguments: --max-step 3 (see --help)"),
    ("06_sgd/plain", "--model resnet50", "no such model; choose from vit_tiny, vit_b_16"),
    ("11_llm/before", "--model {tmp}/code", "comes with Python code of its own; if you trust it"),
    ("11_llm/before", "--model nowhere", "no such folder, and the Hugging Face hub does not have"),
    ("11_llm/before", "--model {tmp}/letters", "pass a folder with a config.json; merge an"),
    ("11_llm/before", "--data {tmp}/tweets.csv", "there must be a part train, and a column label"),
    ("11_llm/causal", "--data {tmp}/scores.jsonl", "there must be a part train, and a column text"),
    (BASELINE, "--data cifar10", "be downloaded (<urlopen error no network>); pass --data digits"),
    ("11_llm/before", "--data imdb", "cannot be read or downloaded (<urlopen error no network>)"),
    (BASELINE, "--model vit_b_16 --data fake", "no network>); pass --no-pretrained, or put http"),
    (FSDP, "--devices 3", "a batch of 16 images is not divisible by 3 devices"),
    ("09_act_ckpt/plain", "--devices 2", "run torchrun --nproc-per-node 2 09_act_ckpt/plain.py"),
    ("11_llm/before", "--data {tmp} --record {tmp}", "would be written into what --data or"),
    (BASELINE, "--data {tmp} --save {tmp}/mine", "/mine would be written into what --data"),
    (FSDP, "--devices 16000", "--devices 16000: there is memory for"),
    ("08_fsdp/pipeline", "--devices 8", "--devices 8: vit_tiny has only 4 blocks to divide"),
    ("11_llm/context_parallel", "--devices 3", "they have to divide --max-length 128 and the mo"),
    ("11_llm/context_parallel", "--max-length 99", "they have to divide --max-length 99 and the"),
    ("shared ladder", "08 --devices 7", "a batch of 16 images is not divisible by 7 devices"),
    (BASELINE, "--resume", "--resume reads the checkpoint in --save DIR; add --save DIR"),
    (BASELINE, "--seed -1", "--seed -1 is not from 0 to 4294967295"),
    (BASELINE, "--seed 4294967296", "--seed 4294967296 is not from 0 to 4294967295"),
    (BASELINE, "--save-minutes -5", "--save-minutes -5.0 is not a number of minutes"),
    (BASELINE, "--data=", "--data or --model is empty; is a variable of the shell not set?"),
    ("11_llm/before", "--model=", "--data or --model is empty; is a variable of the shell not"),
    ("shared ladder", "08 --devices 100000", "--devices 100000: there is memory for"),
    ("shared ladder", "01 --out {tmp}/tweets.csv", "ladder.jsonl cannot be written: Not a dir"),
    ("shared report", "--out {tmp}/tweets.csv", "index.html cannot be written: Not a directory"),
    ("shared report", "--out /proc/mine", "/proc/mine/index.html cannot be written: No such file"),
    ("shared ladder", "01 --data {tmp} --out {tmp}/out", "/out would be written into what --data"),
    ("shared ladder", "42", "stage 42: there is no stage 42; there are 01 to 11"),
    (
        "shared ladder",
        "03 --one-gpu",
        "--one-gpu names the scripts; leave out the stages and --side",
    ),
    ("shared predict", "06 --model vit_b", "no such model; choose from vit_tiny, vit_b_16"),
    ("shared predict", "--card much", "--card: much is not a known card; choose from v100"),
    ("shared predict", "--model vit_tiny 11", "is for images, but 11_llm/before trains on"),
    ("shared predict", "08 --preset tiny --devices 3", "16 images is not divisible by 3"),
    ("shared predict", "06 --updates 5", "unrecognized arguments: --updates 5"),
    ("shared predict", "06 -- --lr 1", "there is no"),
    ("shared predict", "06 --image-px 1", "--image-px 1: vit_l_16 takes a multiple of 16"),
    ("shared predict", "06 --image-px 16 --model vit_h_14", "vit_h_14 takes a multiple of 14"),
    ("shared predict", "06 --model ,", "--model ',' has an empty name"),
    ("shared predict", "06 --model=", "--model '' has an empty name"),
    ("shared predict", "08 --devices 100000000", "100000000 is more than 100,000"),
    ("shared predict", "01 --batch-size 1000000000", "1000000000 is more than 1,000,000"),
    (
        "shared predict",
        "01 --preset tiny --batch-size 1000",
        "its data make 2 updates, not 3; take",
    ),
    ("shared predict", "06 --one-gpu", "--one-gpu names the scripts; leave out the others"),
    ("11_llm/images", "--no-pretrained --model gpt_tiny", "gpt2 models cannot caption images"),
    ("11_llm/images", "--max-length 16", "--max-length 16: an image has one token or more"),
    ("11_llm/images", "--max-length 600", "600: qwen2_vl_tiny accepts at most 512 tokens"),
    ("11_llm/moe", "--no-pretrained --model gpt_tiny", "gpt2 models have no experts, or no loss"),
    ("11_llm/moe", "--no-pretrained --model distilbert_tiny", "cannot predict the next token"),
    ("11_llm/moe", "--max-length 600", "--max-length 600: olmoe_tiny accepts at most 512 tokens"),
    ("11_llm/grpo", "--no-pretrained --max-length 1", "its completion are at least 2 tokens"),
]


@pytest.fixture
def tmp(tmp_path, monkeypatch):
    """A folder without a valid data set, on a computer without a network."""

    def offline(*_, **__):
        raise URLError("no network")

    def hub(name, load=datasets.load_dataset, **options):
        return offline() if "/" in name and not options else load(name, **options)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", offline)
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    monkeypatch.setattr(datasets, "load_dataset", hub)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("Dear")
    (tmp_path / "tweets.csv").write_text("text,mood\na,b\n")
    (tmp_path / "scores.jsonl").write_text('{"score": 0.28}\n')
    (tmp_path / "code").mkdir()
    own = {"AutoConfig": "own.Config", "AutoModelForSequenceClassification": "own.Model"}
    config = json.dumps({"model_type": "mine", "auto_map": own})
    (tmp_path / "code" / "config.json").write_text(config)
    (tmp_path / "code" / "own.py").write_text("raise SystemExit('this must not run')")
    return tmp_path


def ask(who, words):
    if who.startswith("shared "):
        return importlib.import_module(f"shared.lab.{who.split()[1]}.command").main(words)
    return scripts.get(who).load().main(["--preset", "tiny", *words])


@pytest.mark.parametrize("who, options, said", MISTAKES)
def test_one_line_says_what_would_be_right(tmp, who, options, said):
    refused(said, ask, who, options.format(tmp=tmp).split())


def test_more_devices_than_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    path = scripts.get(FSDP).path
    args = cli.parse(path, [], 16, 4)
    assert args.devices == 2 and "4 GPUs wanted, 2 here" in args.notes
    with pytest.raises(UserError, match="--devices 4: there are 2 GPUs"):
        cli.parse(path, ["--devices", "4"], 16, 4)


OF_TORCHRUN = {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}


def test_torchrun_on_two_machines(monkeypatch):
    for name, value in OF_TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda _: SimpleNamespace(prctl=lambda *_: 0))
    sharded = cli.parse(scripts.get(FSDP).path, ["--preset", "tiny"], 16, 4)
    assert (sharded.devices, sharded.num_nodes, sharded.world_size) == (2, 2, 4)
    alone = cli.parse(scripts.get(BASELINE).path, ["--preset", "tiny"], 64)
    assert (alone.devices, alone.num_nodes, alone.world_size) == (1, 1, 1)


@pytest.mark.parametrize("name", [*OF_TORCHRUN, "GROUP_RANK", "NODE_RANK", "MASTER_PORT"])
@pytest.mark.parametrize("text", ["abc", "", "-1"])
def test_a_variable_of_torchrun_that_is_no_number(name, text, monkeypatch):
    monkeypatch.setenv(name, text)
    with pytest.raises(UserError, match=f"^{name}={text}: this variable must be a number"):
        ask("08_fsdp/plain", ["--dry-run"])


WRONG_TOGETHER = [{name: None} for name in OF_TORCHRUN if name != "LOCAL_WORLD_SIZE"]
WRONG_TOGETHER += [{"WORLD_SIZE": "1"}, {"WORLD_SIZE": "5"}, {"RANK": "4"}, {"LOCAL_RANK": "2"}]


@pytest.mark.parametrize("change", WRONG_TOGETHER)
def test_variables_of_torchrun_that_do_not_go_together(change, monkeypatch):
    for name, value in {**OF_TORCHRUN, **change}.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="^LOCAL_WORLD_SIZE=2 does not go with RANK, LOCAL_RANK,"):
        ask(FSDP, ["--dry-run"])


def test_a_job_that_is_started_again_after_its_end_has_succeeded(tmp_path, capsys):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("of a run")
    with pytest.raises(SystemExit) as end:
        ask("06_sgd/train", ["--save", str(tmp_path), "--resume"])
    assert not end.value.code
    assert f"{tmp_path} holds the model of a finished run" in capsys.readouterr().err
    assert [file.read_text() for file in tmp_path.iterdir()] == 2 * ["of a run"]


IMAGES = '{"model": "vit_tiny", "image_px": 32, "classes": ["a", "b"], "cropped": false'
CONFIGS = {  # config.json, and what the program for images says
    "empty": ("{}", "config.json has no 'model'; 11_llm/classify.py reads models of texts"),
    "texts": ('{"model_type": "bert"}', "config.json has no 'model'; 11_llm/classify.py reads"),
    "broken": ('{"model', "Unterminated string starting at: line 1 column 2"),
    "list": ("[1]", "list indices must be integers"),
    "binary": ("\udcff", "can't decode byte 0xff"),
    "unknown": (IMAGES.replace("tiny", "large") + "}", "Unknown model vit_large"),
    "weights": (IMAGES + "}", "No such file or directory"),
}
PROGRAMS = ("10_offload/classify", "11_llm/classify", "11_llm/generate")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", [*CONFIGS, "nothing"])
def test_a_folder_that_holds_no_model_of_a_kind(name, program, tmp_path):
    content, said = CONFIGS.get(name, ("", "holds no model; pass a folder that"))
    if content:
        (tmp_path / "config.json").write_text(content, errors="surrogateescape")
    main = runpy.run_path(f"{program}.py")["main"]
    line = refused(f"{tmp_path} holds no ", main, [str(tmp_path), "a picture"])
    assert said in line or program != PROGRAMS[0]


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_a_seed_that_is_none(seed, tmp_path):
    with pytest.raises(UserError, match=f"^--seed {seed} is not from 0 to 4294967295"):
        runpy.run_path("11_llm/generate.py")["main"]([str(tmp_path), "a text", "--seed", seed])


@pytest.mark.parametrize("precision, said", [("bf16-true", 1), ("32-true", 0)])
def test_a_gpu_without_bf16_instructions_says_so(precision, said, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla T4")
    monkeypatch.setattr(Accuracy, "to", lambda metric, _: metric)  # there is no GPU to move it to
    args = cli.parse(scripts.get(BASELINE).path, ["--preset", "tiny"], 64)
    Meter(args, torch.device("cuda", 0), precision)
    assert capsys.readouterr().out.count(bf16.NOTE + bf16.SLOW) == said


@pytest.mark.parametrize(
    "command",
    [
        "01_baseline/train.py --data {}/nowhere",
        "01_baseline/train.py --data {}",
        "01_baseline/train.py --data digits --save /proc/nowhere",
        "01_baseline/train.py --data digits --save {}/a/nowhere.png",
        "01_baseline/plain.py --record {}/a/nowhere.png/record.jsonl",
        "-m shared predict --card nowhere",
        "-m shared calibrate --out /proc/nowhere",
        "01_baseline/train.py --data /dev/zero",
    ],
)
def test_a_command_ends_with_one_line_and_exit_code_2(command, tmp_path):
    """Picture files that hold text are reported by a worker process of the loader."""
    for name in "ab":
        paint(tmp_path / name, 20, 0)
    for i in range(20):  # so that the first batch has one
        (tmp_path / "a" / f"{i}.png").write_text("Dear")
    (tmp_path / "a" / "nowhere.png").touch()
    printed = run(*command.format(tmp_path).split(), code=2).strip().splitlines()
    said = r"^\S+: .*(nowhere|/zero. is neither|a/\d+\.png is not a readable pic)"
    assert re.search(said, printed[-1])
    assert "Traceback" not in "".join(printed)


@pytest.mark.parametrize(
    "command, environment, said",
    [
        ("-m shared predict 06 --card l4", NO_COMPILER, "C compiler"),
        ("-m shared predict 08_fsdp/own_script.py", NO_COMPILER, "C compiler"),
        ("-m emulated_gpu 06_sgd/train.py", NO_COMPILER, "C compiler"),
        ("-m emulated_gpu 06_sgd/train.py", {"CC": "'x"}, "No closing quotation"),
        ("-m emulated_gpu 06_sgd/train.py", {"CC": "false"}, "false ended with exit code 1"),
    ],
)
def test_a_line_says_why_no_gpu_is_emulated(command, environment, said, tmp_path):
    printed = run(*command.split(), code=2, XDG_CACHE_HOME=tmp_path, **environment)
    assert said in printed.strip().splitlines()[-1] and "Traceback" not in printed


def test_the_handler_of_errors_needs_no_rank():
    printed = run("01_baseline/plain.py", "--max-step", 3, code=2, RANK="abc")
    assert "unrecognized arguments" in printed and "Traceback" not in printed


def test_a_place_that_is_tried_is_left_as_it_was(tmp_path):
    (tmp_path / "old.json").write_text("old")
    for place, is_folder in (("old.json", False), ("a/b/new.json", False), ("c/d", True)):
        try_writing(tmp_path / place, is_folder)
    assert [file.name for file in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "old"
