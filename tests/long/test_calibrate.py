"""Promise: on a GPU, one command reports the errors of the predictions."""

import tarfile
import types

import torch
from conftest import read_json, run

from shared.emulator import cards
from shared.evidence.calibrate import child, command, operations, report
from shared.predict import machine
from shared.predict.jobs import Wanted, run_jobs
from shared.records.views import read_list

CARD = {"name": "NVIDIA A100-SXM4-80GB", "total_memory": 85_000_000_000, "major": 8, "minor": 0}
CARD |= {"multi_processor_count": 108, "max_threads_per_multi_processor": 2048}


def test_without_a_gpu_it_tests_itself(tmp_path):
    """A second run measures nothing again, and the predictions are exact."""
    name = "05_grad_accum/train"
    for again in (False, True):
        printed = run("-m", "shared.evidence.calibrate", "05", "--out", tmp_path)
        assert ("measured before" in printed) == again
    (p,) = read_list(tmp_path / "cpu-checked.json")
    assert p["measured"]["steps"] == command.UPDATES and p["measured"]["world_size"] == 1
    assert p["train"]["device_peak_gb"] == p["measured"]["train"]["device_peak_gb"]
    assert p["measured"]["images_per_second"] > 0
    found = read_json(tmp_path / "cpu-operations.json")["operations"][name]["rows"]
    assert found and all(map(operations.right, found))
    n = len({row["operation"] for row in found})  # the operations differ between versions
    assert f"formulas: {n} of {n} operations as measured" in printed and "simulated GPU" in printed
    with tarfile.open(tmp_path / "cpu-checked.tar.gz") as tar:
        assert {"cpu-checked/cpu-operations.json", "cpu-checked/logs"} <= {*tar.getnames()}


SUMMED = "aten.sum.dim_IntList"


def with_a_wrong_formula(name, wanted):
    """Watch a simulated GPU, with a formula that is too low for one operation."""

    class Wrong(operations.Workspaces):
        def of(self, func, *rest):
            at_once, kept = super().of(func, *rest)
            return ([], [-5_000_000]) if str(func) == SUMMED else (at_once, kept)

    operations.Workspaces = Wrong
    return operations.simulated(name, wanted)


def test_a_wrong_formula_is_found_and_no_other():
    name = "03_bf16/train"
    (rows,) = run_jobs([(with_a_wrong_formula, name, Wanted("gpu", "tiny"))])
    found = {name: {"rows": rows}}
    assert {row["operation"] for _, row in report.wrong(found)} == {SUMMED}
    assert report.table(report.compared(found))[1][0] == "sum.dim_IntList"
    known = {row["operation"] for row in rows}
    assert f"{len(known) - 1} of {len(known)} operations as measured" in report.formulas(found)


def watched_for_real(name, options):
    """Train on this CPU as on_gpu() does on a GPU, with the formulas of an A100."""
    torch.set_num_threads(1)
    properties, machine.INSTALLED = types.SimpleNamespace(**CARD), (2, 15)
    torch.cuda.get_device_properties = lambda _: properties
    sees_nothing = types.SimpleNamespace(device="cpu", start=lambda: 0, peak=lambda: 0)
    operations.CudaCounters = lambda: sees_nothing
    return operations.on_gpu(name, options), cards.of_this_machine(properties)


def test_a_script_is_watched_while_it_trains():
    """The script's own main() runs; both passes are seen in each watched update."""
    options = ["--preset", "tiny", "--data", "fake", "--no-pretrained"]
    ((rows, card),) = run_jobs([(watched_for_real, "04_batchsize/train", options)])
    product = [row for row in rows if row["operation"] == "aten.mm.default"]
    assert {row["pass"] for row in product} == {"backward", "forward or step"}
    assert all(row["calls"] % operations.WATCHED == 0 for row in rows)
    cublas = operations.Workspaces(card, (2, 15)).cublas()
    assert {(row["measured"], row["formula"]) for row in product} == {(0, cublas)}


def test_counters_of_cuda(monkeypatch):
    """Check the names of PyTorch's counters, the only part that can be tested without a GPU."""
    assert '"requested_bytes.' in torch.cuda.memory_stats.__doc__
    stats = {"requested_bytes.all.current": 7, "requested_bytes.all.peak": 9}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: stats.update(reset=True))
    counters = operations.CudaCounters()
    assert (counters.start(), counters.peak()) == (7, 9) and stats["reset"]


def test_what_is_outside_the_allocator(monkeypatch):
    told = types.SimpleNamespace(stdout="1024\n")
    monkeypatch.setattr(child.subprocess, "run", lambda *_, **__: told)
    assert child.used() == 2**30
    said = report.context({**CARD, "outside": {"first tensor": 500 * 2**20}, "before": 0})
    assert said.endswith("in MiB: after first tensor 500")
