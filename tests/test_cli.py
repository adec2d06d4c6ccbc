"""Promise: a mistake ends in one line that says what would be right, and in exit code 2."""

import os
import subprocess
import sys
from urllib.error import URLError

import pytest
import torch
import torchvision
from conftest import NAMES, ROOT, SINGLE, cpu_only

from shared import UserError, cli, models, stages

BASELINE, FSDP = ROOT / "01_baseline" / "train.py", ROOT / "08_fsdp" / "train.py"
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
    (["--record", "/proc/nowhere/r.jsonl"], "cannot write /proc/nowhere/r.jsonl"),
]


@pytest.mark.parametrize("argv, message", WRONG)
def test_main_says_what_would_be_right(argv, message):
    with pytest.raises(UserError) as error:
        stages.load("01_baseline").main(["--preset", "tiny", *argv])
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("command, message", [
    (["01_baseline/train.py", "--max-steps", "0"], "01_baseline/train.py: argument --max-steps: 0 is not a positive whole number (see --help)"),
    (["08_fsdp/train.py", "--preset", "tiny", "--devices", "3"], "08_fsdp/train.py: --devices 3: a batch of 16 images does not divide by 3; possible are 1, 2, 4, 8, 16"),
    (["08_fsdp/train.py", "--preset", "tiny", "--data", "nowhere"], "08_fsdp/train.py: --data nowhere: there is no such folder; pass digits, cifar10, fake, or a folder with train/<class>/* and test/<class>/*"),
    (["09_act_ckpt/plain.py", "--preset", "tiny", "--devices", "2"], "09_act_ckpt/plain.py: --devices 2: this script starts no further processes; torchrun --nproc-per-node 2 09_act_ckpt/plain.py does"),
    (["-m", "shared.predict", "--plain", "--one-by-one"], "shared/predict.py: --one-by-one is about texts, but the scripts in plain PyTorch are about images; leave one of them out"),
    (["-m", "shared.predict", "--plain", "11"], "shared/predict.py: 11_llm has no plain.py; 01_baseline to 10_offload have one"),
    (["-m", "shared.ladder", "--out", "/proc/nowhere"], "shared/ladder.py: cannot write /proc/nowhere/ladder.jsonl: No such file or directory; choose another file"),
    (["-m", "shared.ladder", "--preset", "tiny", "--stages", "06", "--limit", "9"], "shared/ladder.py: --limit is about texts, and none of the stages asked for is; leave it out, or add 11 to --stages"),
    (["-m", "shared.ladder", "--stages", "42"], "shared/ladder.py: --stages 42: there is no stage 42; there are 01 to " + stages.names()[-1][:2]),
    (["-m", "shared.ladder", "--data", "nowhere"], "shared/ladder.py: --data nowhere: there is no such folder; pass digits, cifar10, fake, or a folder with train/<class>/* and test/<class>/*"),
])
def test_command_ends_in_one_line_and_exit_code_2(command, message, tmp_path):
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=cpu_only(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.strip()] == [message]


def test_help_lists_the_options():
    done = subprocess.run([sys.executable, str(BASELINE), "--help"], env=cpu_only(), capture_output=True, text=True, cwd="/")
    assert done.returncode == 0
    for option in ("--preset", "--model", "--data", "--devices", "--epochs", "--max-steps", "--seed", "--no-pretrained", "--record"):
        assert option in done.stdout


@pytest.fixture
def gpus(monkeypatch):
    """Pretends that there are this many GPUs."""
    def pretend(n):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n)
    return pretend


@pytest.mark.parametrize("here, wanted, got", [(1, None, 1), (2, None, 2), (3, None, 2), (4, None, 4), (8, None, 4), (2, 8, 2), (3, 16, 2)])
def test_fewer_gpus_than_wanted(gpus, here, wanted, got):
    gpus(here)
    args = cli.parse(FSDP, ["--devices", str(wanted)] if wanted else [], batch_size=16, devices=4)
    assert args.devices == args.world_size == got
    assert args.preset == "full" and args.model == "vit_l_16" and args.data == "cifar10" and args.image_px == 224
    assert any(f"{here} here: training on {got}" in note for note in args.notes) == (here < (wanted or 4))


def test_a_stage_on_one_device_says_so():
    args = cli.parse(BASELINE, ["--devices", "4"], batch_size=64, devices=1)
    assert args.devices == 1 and any("08_fsdp/train.py and the later ones" in note for note in args.notes)


def test_torchrun_decides_the_number_of_processes(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    args = cli.parse(FSDP, [], batch_size=16, devices=4)
    assert (args.devices, args.num_nodes, args.world_size) == (2, 2, 4)
    with pytest.raises(UserError, match="leave --devices out"):
        cli.parse(FSDP, ["--devices", "8"], batch_size=16, devices=4)
    with pytest.raises(UserError, match="trains on one device"):
        cli.parse(BASELINE, [], batch_size=64, devices=1)
    monkeypatch.setenv("WORLD_SIZE", "6")
    with pytest.raises(UserError, match="3 machines cannot share it"):
        cli.parse(FSDP, [], batch_size=16, devices=4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match="does not divide by 3"):
        cli.parse(FSDP, [], batch_size=16, devices=4)


def test_torchrun_with_more_processes_than_gpus(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UserError, match="4 processes, but there are 2 GPUs here"):
        cli.parse(FSDP, [], batch_size=16, devices=4)


def test_who_starts_the_processes_of_plain_pytorch(gpus, monkeypatch):
    plain = ROOT / "08_fsdp" / "plain.py"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")  # undone afterwards
    gpus(2)
    args = cli.parse(plain, [], batch_size=16, devices=4, launcher="torchrun")
    assert (args.world_size, args.devices) == (1, 1) and "one process; torchrun --nproc-per-node 2 08_fsdp/plain.py starts 2" in args.notes
    assert [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")] == ["0", "0", "1"]
    gpus(1)
    assert not any("torchrun" in note for note in cli.parse(plain, [], batch_size=16, devices=4, launcher="torchrun").notes)
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.setenv("WORLD_SIZE", "1")
        monkeypatch.setenv(name, "2")
        with pytest.raises(UserError, match="works together with what torchrun starts"):
            cli.parse(plain, [], batch_size=16, devices=4, launcher="torchrun")


def test_slurm_wants_torchrun(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "1")
    with pytest.raises(UserError, match="torchrun --nproc-per-node GPUS 08_fsdp/train.py"):
        cli.parse(FSDP, [], batch_size=16, devices=4)


def test_bf16_needs_a_gpu_that_has_it(monkeypatch):
    from shared.metrics import Meter

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla T4")
    args = cli.parse(BASELINE, ["--preset", "tiny"], batch_size=64)
    with pytest.raises(UserError, match="Tesla T4 cannot compute in bf16.*02_mixed_precision"):
        Meter(args, torch.device("cuda", 0), "bf16-true")


@pytest.mark.parametrize("phase", ["load", "train"])
@pytest.mark.parametrize("stage", SINGLE)
def test_out_of_gpu_memory(monkeypatch, stage, phase):
    module = stages.load(stage)
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
    assert stages.next_with_less(stage, phase) in later
    assert f"{stages.next_with_less(stage, phase)} needs less" in str(error.value)
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()  # the ledger has stopped listening


@pytest.mark.parametrize("stage, phase, better", [
    ("01_baseline", "train", "02_mixed_precision"),
    ("01_baseline/plain", "train", "02_mixed_precision"),
    ("06_sgd", "train", "08_fsdp"),  # 07 is about loading
    ("09_act_ckpt", "train", "10_offload"),
    ("01_baseline", "load", "03_bf16"),
    ("06_sgd", "load", "08_fsdp"),
    ("10_offload", "train", None),
])
def test_advice_when_memory_is_short(stage, phase, better):
    assert stages.next_with_less(stage, phase) == better


def test_weights_without_network(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def offline(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(UserError, match="could not be downloaded .*--no-pretrained"):
        stages.load("01_baseline").main(["--preset", "tiny", "--model", "vit_b_16"])


def small_download(monkeypatch, tmp_path, name="vit_b_16"):
    """Puts a file in the place of a model's ImageNet weights, where torch.hub keeps its downloads."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder / torchvision.models.get_model_weights(name).DEFAULT.url.rsplit("/", 1)[1]


def test_damaged_weights_on_disk(monkeypatch, tmp_path):
    file = small_download(monkeypatch, tmp_path)
    file.write_bytes(b"torn")
    with pytest.raises(UserError, match="is damaged .*delete it"):
        stages.load("01_baseline").main(["--preset", "tiny", "--model", "vit_b_16"])


def test_damaged_weights_in_the_download(monkeypatch, tmp_path, web):
    small_download(monkeypatch, tmp_path)
    (web[0] / "vit_b_16-c867db91.pth").write_bytes(b"torn")
    weights = torchvision.models.get_model_weights("vit_b_16").DEFAULT
    monkeypatch.setattr(type(weights), "url", property(lambda self: f"{web[1]}/vit_b_16-c867db91.pth"))
    with pytest.raises(UserError, match="the download of .* was damaged"):
        stages.load("01_baseline").main(["--preset", "tiny", "--model", "vit_b_16"])


def test_pretrained_weights_get_a_fresh_head(monkeypatch, tmp_path):
    """The real loading code, on a file that has the layout of torchvision's and the checksum of its own."""
    file = small_download(monkeypatch, tmp_path)
    torch.manual_seed(1)
    imagenet = torchvision.models.vit_b_16().state_dict()
    torch.save(imagenet, file)
    digest = models._sha256(file)[:8]
    weights = torchvision.models.get_model_weights("vit_b_16").DEFAULT
    file.rename(file.with_name(f"vit_b_16-{digest}.pth"))
    monkeypatch.setattr(type(weights), "url", property(lambda self: f"http://127.0.0.1:9/vit_b_16-{digest}.pth"))
    args = cli.parse(BASELINE, ["--preset", "tiny", "--model", "vit_b_16"], batch_size=64)
    args.num_classes = 10
    state = torch.load(models.checkpoint(args), weights_only=True)
    assert state["heads.head.weight"].shape == (10, 768)
    assert torch.equal(state["conv_proj.weight"], imagenet["conv_proj.weight"])
    models.vit(args).load_state_dict(state)


def test_unwritable_cache(monkeypatch):
    monkeypatch.setenv("TORCH_HOME", "/proc/nowhere")
    with pytest.raises(UserError, match="set TORCH_HOME"):
        stages.load("01_baseline").main(["--preset", "tiny"])
