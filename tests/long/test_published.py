"""Promise: emulated figures of published runs are current, and as close as the page says.

The measurements are those on shared/lab/evidence/README.md.
"""

import re
import shutil
import statistics
from pathlib import Path

import pytest
from conftest import ROOT, run
from helpers.predictions import near

from shared.lab import EMULATOR
from shared.lab.lessons import proof
from shared.lab.proof.published import command, run_row, sources
from shared.lab.proof.published.show import error
from shared.lab.proof.published.sources import REPORTS, SOURCES
from shared.lab.records import stored, time_errors

# Quick sources of several kinds: DDP with its buckets in an old version, DTensors, the Trainer.
QUICK = ("ZeroRedundancy", "tensor parallelism", "optimum")
# Not within 2 % with a PyTorch that keeps cuBLAS's workspaces: the source's did not count them.
FURTHER = {
    ("PyTorch: automatic mixed precision, on a T4", "3 layers of 4096 x 4096, fp16 mixed, SGD")
}


CUBLAS = 8_519_680  # bytes of a workspace of cuBLAS on a T4


@pytest.fixture(scope="module")
def records():
    return stored.read(stored.PUBLISHED)


def test_quick_rows_are_as_recorded(records):
    chosen = [s for s in SOURCES if any(word in s["title"] for word in QUICK)]
    titles = {source["title"] for source in chosen}
    then = [r for r in records if r["source"] in titles]
    assert len(chosen) == len(QUICK)
    rows = [row for source in chosen for row in sources.rows(source)]
    for a, b in zip(command.emulated(rows), then, strict=True):
        for name in ("emulated_gb", "allocated_gb", "reserved_gb"):
            assert a[name] == near(b[name], a["torch"] == b["torch"]), a["what"]


def test_scripts_of_others_run_where_little_but_pytorch_is_installed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(64, 64).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "while True:\n    model(torch.ones(8, 64).cuda()).sum().backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    for package in ("watermark", "lightning", "torchmetrics", "transformers"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('not in this environment')\n")
    runner = Path(run_row.__file__).with_name("older_pytorch.py")
    path = f"{tmp_path}:{ROOT}:{EMULATOR}"
    # It ends after a few updates, with the counters of its process.
    said = run("-m", "emulated_gpu", runner, script, cwd=tmp_path, PYTHONPATH=path)
    assert "allocated" in said and "ended with" not in said


def test_complete_rows_are_within_2_percent(records):
    complete = {s["title"] for s in SOURCES if s.get("complete", True)} - {REPORTS["title"]}
    sizes = [r for r in records if r["source"] in complete and r["published_gb"]]
    off = {(r["source"], r["what"]) for r in sizes if abs(error(r)) > 0.02}
    assert off <= FURTHER and len(complete) >= 7


def test_the_first_page_says_how_many(records):
    table = proof.how_right(ROOT / "shared" / "lab" / "evidence")
    figures, near = re.search(
        r"settings known \| (\d+) figures .* \| (\d+) within 2% ", table
    ).groups()
    text = (ROOT / "README.md").read_text("utf-8")
    assert f"Of {figures} [published figures]" in text
    assert f"with known settings, {near} come out within 2 %" in text
    large = [r for r in records if r["source"] == "torchtitan 2024"]
    assert f"torchtitan's {len(large)}, on 8 to 512 GPUs, all within 2 %" in text
    assert all(abs(error(r)) < 0.02 for r in large)
    page = (ROOT / "shared/lab/evidence/README.md").read_text("utf-8")
    assert "18 published rows say, within 2 %" in page


def test_each_report_that_differs_says_why(records):
    rows = {row["what"]: row for row in sources.rows(REPORTS)}
    found = {r["what"]: r for r in records if r["source"] == REPORTS["title"]}
    assert found.keys() == rows.keys() and len(rows) > 40
    for words, r in found.items():
        assert "why" in rows[words] or abs(error(r)) < 0.002, words


def test_a_reader_on_a_t4_printed_these_bytes(records):
    """1,350,681,600 and 1,577,232,384, with a PyTorch that did not count cuBLAS's workspaces.

    What is more here is at most those of a forward and a backward pass, two of each.
    """
    fp32, fp16 = [r["emulated_gb"] * 1e9 for r in records if "T4" in r["source"]]
    for here, there in ((fp32, 1_350_681_600), (fp16, 1_577_232_384 - 1024)):
        assert 0 <= here - there <= 4 * CUBLAS


def test_only_some_run_anew(tmp_path, monkeypatch, capsys):
    copy = shutil.copy(stored.PUBLISHED, tmp_path)
    monkeypatch.setattr(stored, "PUBLISHED", Path(copy))
    now = command.main(["--only", "T4"])
    assert len(now) == 2 and "1.35 GB" in capsys.readouterr().out


def test_fsdp1_is_near(records):
    """The named exception is offloading, whose step on the host takes time that is not known."""
    timed = {s["title"] for s in SOURCES if "host" in s}
    ours = [r for r in records if r["source"] in timed and r["devices"] > 1]
    off = [r["what"] for r in ours if abs(error(r)) > 0.05]
    assert off == ["one unit per block, checkpointing, offload"] and len(ours) == 11


def test_emulated_times_are_near_where_nothing_was_fitted(records):
    """The table of times is of one H200: other cards and scripts show what it is worth."""
    ran = [r for r in records if r["source"].startswith("timm, speeds") and "time" in r]
    timm = [abs(time_errors.error(r)) for r in ran]
    assert len(timm) >= 60 and statistics.median(timm) < 0.2
