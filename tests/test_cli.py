"""Promise: a mistake ends in one line that says what would be right, and in exit code 2."""

import json
import subprocess
import sys

import pytest
import torch
from conftest import NAMES, SINGLE, cpu_only, read_json, run

from shared.common import scripts
from shared.common.errors import UserError
from shared.images import cli
from shared.metrics import Meter
from shared.records.advice import next_with_less

BASELINE = scripts.get("01_baseline/train")
WRONG = [
    (["--preset", "huge"], "'tiny', 'full'"),
    (["--model", "resnet50"], "choose from vit_tiny, vit_b_16"),
    (["--max-steps", "0"], "0 is not a positive whole number"),
    (["--epochs", "-1"], "-1 is not a positive whole number"),
    (["--devices", "x"], "x is not a positive whole number"),
    (["--seed", "x"], "x is not a whole number from 0 to"),
    (["--seed", "-1"], "-1 is not a whole number from 0 to"),
    (["--max-step", "3"], "unrecognized arguments"),
    (["--data", "nowhere"], "there is no such folder"),
    (["--data", ""], "argument --data: it is empty"),
    (["--model", " "], "argument --model: it is empty"),
    (["--record", "/proc/nowhere/r.jsonl"], "cannot write /proc/nowhere/r.jsonl"),
]


@pytest.mark.parametrize("argv, message", WRONG)
def test_main_says_what_would_be_right(argv, message):
    with pytest.raises(UserError) as error:
        BASELINE.load().main(["--preset", "tiny", *argv])
    assert message in str(error.value) and "\n" not in str(error.value)


NO_FOLDER = (
    "--data nowhere: there is no such folder; pass digits, cifar10, fake, or a folder with "
    "train/<class>/* and test/<class>/*"
)
NO_TEXTS = (
    "--data nowhere: there is no such file or folder; pass reviews, imdb, fake, a folder like "
    "aclImdb, or a CSV or JSONL file"
)
ENDINGS = {
    "01_baseline/train.py --max-steps 0": "01_baseline/train.py: argument --max-steps: "
    "0 is not a positive whole number (see --help)",
    "08_fsdp/train.py --preset tiny --devices 3": "08_fsdp/train.py: --devices 3: "
    "a batch of 16 images does not divide by 3; possible are 1, 2, 4, 8, 16",
    "08_fsdp/train.py --preset tiny --devices 2 --data nowhere": f"08_fsdp/train.py: {NO_FOLDER}",
    "09_act_ckpt/plain.py --preset tiny --devices 2": "09_act_ckpt/plain.py: --devices 2: "
    "this script starts no further processes; "
    "torchrun --nproc-per-node 2 09_act_ckpt/plain.py does",
    "11_llm/before.py --preset tiny --data nowhere": f"11_llm/before.py: {NO_TEXTS}",
    "11_llm/train.py --preset tiny --devices 2 --data nowhere": f"11_llm/train.py: {NO_TEXTS}",
    "-m shared.predict --plain --one-by-one": "python -m shared.predict: --one-by-one is about "
    "texts, but the scripts in plain PyTorch are about images; leave one of them out",
    "-m shared.predict --plain 11": "python -m shared.predict: 11_llm has no plain.py; "
    "01_baseline to 10_offload have one",
    "-m shared.ladder --out /proc/nowhere": "python -m shared.ladder: "
    "cannot write /proc/nowhere/ladder.jsonl: No such file or directory; choose another file",
    "-m shared.ladder 06 --preset tiny --limit 9": "python -m shared.ladder: --limit is "
    "about texts, and none of the scripts asked for is; leave it out, or add stage 11",
    "-m shared.ladder 42": "python -m shared.ladder: stage 42: there is no stage 42; "
    f"there are 01 to {scripts.folders()[-1][:2]}",
    "-m shared.ladder --data nowhere": f"python -m shared.ladder: {NO_FOLDER}",
}


@pytest.fixture(scope="module")
def endings(tmp_path_factory):
    """How each command ends: {command: (exit code, stderr)}."""
    folder = tmp_path_factory.mktemp("endings")
    (folder / "commands.json").write_text(json.dumps([command.split() for command in ENDINGS]))
    assert not run("tests/forks.py", folder / "commands.json", folder / "out.json")
    return dict(zip(ENDINGS, read_json(folder / "out.json"), strict=True))


@pytest.mark.parametrize("command", ENDINGS)
def test_command_ends_in_one_line_and_exit_code_2(endings, command):
    code, said = endings[command]
    assert code == 2
    assert [line for line in said.splitlines() if line.strip()] == [ENDINGS[command]]


def test_help_lists_the_options():
    """From any folder: the script itself finds shared/."""
    command = [sys.executable, BASELINE.path, "--help"]
    env = cpu_only(PYTHONPATH="")
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd="/", timeout=120)
    assert done.returncode == 0
    options = "preset model data devices epochs max-steps seed no-pretrained record".split()
    assert all(f"--{option}" in done.stdout for option in options)


@pytest.mark.parametrize("phase", ["load", "train"])
@pytest.mark.parametrize("stage", SINGLE)
def test_out_of_gpu_memory(monkeypatch, stage, phase):
    module = scripts.get(stage).load()
    calls = []

    def too_much(*args):
        calls.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(module, "build" if phase == "load" else "train_step", too_much)
    with pytest.raises(UserError) as error:
        module.main(["--preset", "tiny", "--max-steps", "2"])
    doing = "loading the model" if phase == "load" else "training, in update 1"
    later = [name for name in NAMES if name > stage]
    assert calls and f"out of GPU memory while {doing}" in str(error.value)
    assert next_with_less(stage, phase) in later
    assert f"{next_with_less(stage, phase)} needs less" in str(error.value)
    # The ledger has stopped listening.
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


@pytest.mark.parametrize(
    "script, phase, better",
    [
        ("01_baseline/train", "train", "02_mixed_precision/train"),
        ("01_baseline/plain", "train", "02_mixed_precision/train"),
        ("06_sgd/train", "train", "08_fsdp/train"),  # 07 is about loading
        ("09_act_ckpt/train", "train", "10_offload/train"),
        ("01_baseline/train", "load", "03_bf16/train"),
        ("06_sgd/train", "load", "08_fsdp/train"),
        ("10_offload/train", "train", None),
    ],
)
def test_advice_when_memory_is_short(script, phase, better):
    assert next_with_less(script, phase) == better


def test_bf16_needs_a_gpu_that_has_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla T4")
    args = cli.parse(BASELINE.path, ["--preset", "tiny"], batch_size=64)
    with pytest.raises(UserError, match="Tesla T4 cannot compute in bf16.*02_mixed_precision"):
        Meter(args, torch.device("cuda", 0), "bf16-true")
