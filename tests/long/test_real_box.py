"""Promise: the page on a real box is right about its commands, as far as a CPU can show."""

import re
import shutil

import pytest
import torch
from conftest import ROOT, run
from helpers.emulated import NEEDS
from helpers.own_recipe import UPDATES, write_weights
from helpers.recipe_runs import RECIPE, seen, trained
from helpers.resuming import OFTEN

from shared.lab.records import scripts

PAGE = (ROOT / "shared" / "memory" / "real_box.md").read_text()
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")
ON_GPUS = ("-m", "emulated_gpu", "--devices")
OUTPUTS = ("stdout", "stderr")
NEW_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # one for each start, with no old addresses
EARLY = (
    "optimizer = torch.optim.AdamW(model.parameters(), lr=LR)  # after sharding=>",
    "model = Model()  # in fp32, without memory=>model = Model(); "
    "optimizer = torch.optim.AdamW(model.parameters(), lr=LR)",
)


@pytest.fixture
def box(tmp_path):
    """An empty folder with a file of weights."""
    write_weights(tmp_path)
    return tmp_path


def launched(folder, n, epochs, *more, before=(), options=(), code=0, **env):
    """Train with the lines of page 08 as torchrun starts them; return the output."""
    words = (*before, *TORCHRUN, n, *options, RECIPE, 0, epochs, *more)
    return run(
        *words,
        cwd=folder,
        code=code,
        PYTHONPATH=f"{ROOT}:{ROOT}/shared/emulator:{ROOT}/tests",
        EMULATE="",
        **env,
    )


def test_torchrun_starts_killed_processes_again(box):
    whole = trained(box, 2, 3)
    logs = ("--log-dir", "logs", "--redirects", 3, "--tee", 3)
    again = ("--standalone", "--max-restarts", 1)
    assert f"{NEW_STORE}=1 torchrun {again[0]} {again[1]} " in PAGE
    for _ in range(3):
        shutil.rmtree(box / "checkpoints")
        shutil.rmtree(box / "logs", ignore_errors=True)
        try:
            printed = launched(box, 2, 3, 3, options=(*again, *logs), **{NEW_STORE: "1"})
            break
        except AssertionError as error:
            # On a busy computer, a process of PyTorch's may abort (seen in two of three runs of
            # all tests); its cause is not known, and torchrun has no restart left for it.
            if "terminate called without an active exception" not in str(error):
                raise
    assert re.search(r"exitcode: -9\) local_rank: 1 ", printed)
    files = {str(file.relative_to(box)) for file in box.glob("logs/*/*/*/*.log")}
    ends = {file.split("/", 2)[2] for file in files}
    names = [f"attempt_{i}/{rank}/{out}.log" for i in "01" for rank in "01" for out in OUTPUTS]
    assert ends == {*names}
    (second,) = box.glob("logs/*/attempt_1/0/stdout.log")
    assert seen(second.read_text()) == [values[2 * UPDATES :] for values in whole]
    assert "[default0]:loss " in printed


@NEEDS
def test_emulated_gpus_train_and_resume_on_fewer(box):
    whole = trained(box, 4, 2)
    shutil.rmtree(box / "checkpoints")
    printed = launched(box, 4, 1, before=(*ON_GPUS, 4))
    rest = launched(box, 2, 2, before=(*ON_GPUS, 2))
    assert "A100 80 GB, peaks" in printed
    for before, after, expected in zip(seen(printed), seen(rest), whole):
        assert [*before, *after] == pytest.approx(expected, rel=0.02)
    convert = "torch.distributed.checkpoint.format_utils", "dcp_to_torch", "checkpoints/0002"
    assert " ".join(("python -m", *convert, "trained.pt")) in PAGE
    run("-m", *convert, "trained.pt", cwd=box)
    file = torch.load(box / "trained.pt")
    assert file["model"]["first.weight"].shape == (33, 64) and file["epoch"] == 2


def test_fp32_has_the_same_losses_on_any_number_of_processes(box):
    """In bf16 they agree within 2%, also if gradients are added up in it."""
    assert "agreed within 2%" in PAGE
    in_fp32 = "Policy(torch.bfloat16, red=>Policy(torch.float32, red"
    in_bf16 = "reduce_dtype=torch.float32=>reduce_dtype=torch.bfloat16"
    for change, digits in ((in_fp32, 1e-5), (in_bf16, 0.02)):
        one, four = ([], [])
        for n, kept in ((1, one), (4, four)):
            shutil.rmtree(box / "checkpoints", ignore_errors=True)
            kept += sum(trained(box, n, 1, 0, change), [])
        assert four == pytest.approx(one, rel=digits)


def test_an_optimizer_from_before_sharding(box):
    """Nothing complains and nothing trains; PyTorch's checkpoint and Fabric notice."""
    with pytest.raises(AssertionError, match="KeyError: 0"):
        trained(box, 2, 1, 0, *EARLY)
    line = "    optimizer = torch.optim.SGD(model.parameters(), lr=LR[args.preset])\n"
    for name, after in (("plain", "    mesh = dist."), ("train", "    model = fabric.setup_mod")):
        text = scripts.get(f"08_fsdp/{name}").path.read_text()
        assert text.count(line) == text.count(after) == 1
        (box / "08_fsdp").mkdir(exist_ok=True)
        early = text.replace(line, "").replace(after, line + after)
        (box / "08_fsdp" / f"{name}.py").write_text(early)
    options = ("--preset", "tiny", "--max-steps", 8, "--record", box / "record.jsonl")
    run("tests/helpers/forks.py", 2, box / "08_fsdp/plain.py", *options)
    record = (box / "record.jsonl").read_text()
    first, last = re.findall(r'"(?:first|last)_loss": ([\d.]+)', record)
    assert first == last
    said = run(box / "08_fsdp/train.py", *options, "--devices", 2, code=1)
    assert "Create the optimizer after setting up the model" in said


def test_resume_refuses_another_number_of_devices(tmp_path):
    """As the page quotes it; PyTorch's checkpoint does not refuse, see above."""
    options = ("--preset", "tiny", "--max-steps", 10, "--save", tmp_path / "saved")
    killed = ("tests/helpers/kill_and_resume.py", 4, tmp_path / "seen.jsonl", "08_fsdp/train", 8)
    run(*killed, *options, *OFTEN, code=1)
    said = run("08_fsdp/train.py", *options, "--devices", 2, "--resume", code=2)
    (quoted,) = re.findall(r"refuses \(`(.*?)`\)", PAGE)
    assert said.rstrip().endswith(quoted)
