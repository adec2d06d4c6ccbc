"""Promise, on a GPU: memory falls as predicted, and the ledger adds up to PyTorch's counters.

Where no GPU is, these run on emulated ones, where losses mean nothing.
"""

import os
from pathlib import Path

import pytest
import torch
from conftest import NAMES, SHARDED, SINGLE, TEXT, run

from emulated_gpu import build, cards
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts
from shared.lab.records.reading import by_script, read

HERE = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
# As many updates as the ledger sees.
SHORT = ["--preset", "full", "--dry-run"]
EMULATED = [] if HERE else ["--card", "a100"]
# Without a GPU, some: tests/test_stages.py compares all on a CPU, and with tiny models.
STAGES = NAMES if HERE else ["06_sgd/train", "08_fsdp/train", "10_offload/train"]
pytestmark = pytest.mark.skipif(not HERE and bool(build.lacking()), reason=build.lacking())


def measured(out, *options):
    """Run a few updates on noise on all GPUs; return the records by script."""
    every = ",".join(map(str, range(torch.cuda.device_count())))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", every)
    emulator = ["-m", "emulated_gpu", *EMULATED, "--devices", 4] if EMULATED else []
    command = ["-m", "shared", "ladder", *SHORT, *options, "--out", out]
    run(*emulator, *command, CUDA_VISIBLE_DEVICES=visible, limit=1000)
    return by_script(read(out / "ladder.jsonl")[0])


def folder(tmp_path_factory, name):
    """Return a folder for a ladder; CUDA_TESTS names one that stays, in which it resumes."""
    kept = os.environ.get("CUDA_TESTS")
    return Path(kept, name) if kept else tmp_path_factory.mktemp(name)


def this_card():
    if EMULATED:
        return cards.CARDS["a100"]
    return cards.of_this_machine(torch.cuda.get_device_properties(0))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records of stages of the ladder with ViT-B/16."""
    numbers = ",".join(stage[:2] for stage in STAGES)
    return measured(folder(tmp_path_factory, "images"), "--model", "vit_b_16", numbers)


@pytest.mark.parametrize("stage", NAMES if HERE else STAGES[:1])
def test_plain_is_fabric(records, stage, tmp_path):
    """The same bytes, and the same losses within rounding; 08 and later on one GPU each."""
    fabric = records[stage]
    if stage in SHARDED and fabric["world_size"] > 1:
        fabric = measured(tmp_path, "--model", "vit_b_16", "--devices", 1, stage[:2])[stage]
    file = tmp_path / "record.jsonl"
    options = [*SHORT, "--model", "vit_b_16", "--record", file]
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    emulator = ["-m", "emulated_gpu", *EMULATED] if EMULATED else []
    path = scripts.get(scripts.plain([stage])[0]).path
    run(*emulator, path, *options, CUDA_VISIBLE_DEVICES=first)
    plain = read(file)[0][0]
    assert plain["precision"] == fabric["precision"]
    if not EMULATED:
        assert plain["last_loss"] == pytest.approx(fabric["last_loss"], rel=1e-3)
    for name in ("device_peak_gb", "device_reserved_gb"):
        assert plain["train"][name] == pytest.approx(fabric["train"][name], rel=0.01)


@pytest.fixture(scope="module")
def text_records(tmp_path_factory):
    """Records of both scripts of 11_llm with DistilBERT."""
    return measured(folder(tmp_path_factory, "texts"), "11")


@pytest.fixture(scope="module")
def predictions(records):
    same = {"model": "vit_b_16", "card": this_card()}
    jobs = [
        (predict, scripts.get(name), Wanted("full", devices=r["world_size"], **same))
        for name, r in records.items()
    ]
    return dict(zip(records, run_jobs(jobs)))


def agree(measured, predicted):
    if EMULATED:  # the same script, but of several processes rank 0 alone
        assert predicted == measured
        return
    assert predicted["device_peak_gb"] == pytest.approx(measured["device_peak_gb"], rel=0.02)
    assert predicted["device_reserved_gb"] == pytest.approx(
        measured["device_reserved_gb"], rel=0.08
    )


@pytest.mark.parametrize("stage", STAGES)
def test_as_predicted(records, predictions, stage):
    agree(records[stage]["train"], predictions[stage]["train"])


@pytest.mark.parametrize("run", TEXT)
def test_text_as_predicted(text_records, run):
    record = text_records[run]
    wanted = Wanted("full", devices=record["world_size"], card=this_card())
    (predicted,) = run_jobs([(predict, scripts.get(run), wanted)])
    agree(record["train"], predicted["train"])


@pytest.mark.parametrize("before, after", list(zip(STAGES, STAGES[1:])))
def test_device_memory_falls(records, before, after):
    if after == "07_init_module/train":  # it saves host memory
        assert records[after]["load"]["host_peak_gb"] < records[before]["load"]["host_peak_gb"]
    elif after in SHARDED and records[after]["world_size"] == 1 and before in SINGLE:
        pytest.skip("one GPU: nothing is sharded")
    else:
        more, less = (records[name]["train"]["device_peak_gb"] for name in (before, after))
        assert less < more


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("phase", ["load", "train"])
def test_breakdown_adds_up_to_the_counters(records, stage, phase):
    """To the byte: tensors, workspaces and rounding are what PyTorch counts at its peak."""
    measured = records[stage][phase]
    held = {label: round(gb * 1e9) for label, gb in measured["breakdown_gb"].items()}
    assert sum(held.values()) == round(measured["device_peak_gb"] * 1e9)
    assert min(held.values(), default=0) >= 0
    if phase == "train":
        assert held["rounding"] < 0.1 * sum(held.values())
