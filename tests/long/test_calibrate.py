"""Promise: on the day there is a GPU, one command says how right the predictions are."""

import os
import types

import torch
from conftest import ROOT, TEXT, read_json, run

from shared.evidence.calibrate import context, operations, packages, pieces, report, store
from shared.predict import cards
from shared.predict.jobs import Wanted, run_jobs
from shared.records.record import read, read_list

# What `python -m shared.evidence.calibrate` must do without: for texts, pages, pictures and tests.
OPTIONAL = packages.listed().keys() - set(packages.NEEDED)
ALSO = {"sklearn", "tokenizers", "markdown_it", "Pygments", "Jinja2", "watermark"}  # other names
CARD = {"name": "NVIDIA H200", "total_memory": 150_000_000_000, "major": 9, "minor": 0}
CARD |= {"multi_processor_count": 132, "max_threads_per_multi_processor": 2048}


def calibrate(*options, code=0, without=OPTIONAL | ALSO):
    path = f"{ROOT / 'tests' / 'without'}{os.pathsep}{ROOT}"
    gone = {"PYTHONPATH": path, "WITHOUT": ",".join(without)}
    return run("-m", "shared.evidence.calibrate", *options, code=code, **gone)


def test_without_a_gpu_it_tests_itself(tmp_path):
    """Interrupted, it goes on; what is there is not measured again; predictions are right.

    All that without the packages that only some scripts need.
    """
    name, options = "05_grad_accum/train", ["05", "11", "--out", tmp_path, "--minutes"]
    first = calibrate(*options, 0.0001)
    measured = tmp_path / "cpu.jsonl"
    assert [r["script"] for r in read(measured)[0]] == [name]
    assert f"predicting {name}" in first.partition("- left, about ")[2]
    assert "- the same command goes on" in first
    second = calibrate(*options, 8)
    assert [r["script"] for r in read(measured)[0]] == [name]
    assert f"{name}  " in second and "left, about" not in second
    assert f"\n{name} starts" not in f"\n{second}"
    for package in OPTIONAL:
        assert f"- not installed: {package}, for: {packages.listed()[package]}" in second
    for text in TEXT:
        assert f"- left out: {text}: transformers is needed and not installed" in second
    (p,) = read_list(tmp_path / "cpu-checked.json")
    assert p["measured"]["steps"] == pieces.UPDATES and p["measured"]["world_size"] == 1
    assert p["train"]["device_peak_gb"] == p["measured"]["train"]["device_peak_gb"]
    assert p["measured"]["images_per_second"] > 0
    assert "1 prediction; allocated: the largest error is +0.00%" in second
    found = read_json(tmp_path / "cpu-operations.json")["operations"][name]["rows"]
    assert found and all(map(operations.right, found))
    n = len({row["operation"] for row in found})  # which ones differs between versions
    assert f"formulas: {n} of {n} operations as measured" in second and "simulated GPU" in second


def test_what_it_needs_itself_it_names():
    last = calibrate(code=2, without=["psutil"]).splitlines()[-1]
    said = "psutil: needed and not installed: pip install psutil"
    assert last == f"python -m shared.evidence.calibrate: {said}"


def test_an_operation_without_a_formula_is_listed():
    """And one that allocates more than its formula says; all others are right."""
    name, summed, without = "03_bf16/train", "aten.sum.dim_IntList", "aten.gelu.default"
    more = {summed: 5_000_000, without: 2_000_000, "aten.gelu_backward.default": 20_000}
    (rows,) = run_jobs([(operations.simulated, name, Wanted("gpu", "tiny"), more)])
    wrong = [row for row in rows if not operations.right(row)]
    differ = {(row["operation"], operations.difference(row)) for row in wrong}
    assert differ == {(summed, 5_000_000), (without, 2_000_000)}
    found = {name: {"rows": rows}}
    assert report.table(report.compared(found))[1][0] == "sum.dim_IntList"
    known = {row["operation"] for row in rows if row["formula"] is not None}
    said = report.formulas(found)
    assert f"{len(known) - 1} of {len(known)} operations as measured" in said and len(known) > 2
    assert f"the largest error is +5.000 MB, of {summed}" in said
    assert said.endswith(f"without a formula, and more than 1 MB: {without}")


def watched_for_real(name, options):
    """Trains on this CPU as on_gpu() does on a GPU, with the formulas of an H200 and torch 2.15."""
    torch.set_num_threads(1)
    properties, cards.INSTALLED = types.SimpleNamespace(**CARD), (2, 15)
    torch.cuda.get_device_properties = lambda _: properties
    sees_nothing = types.SimpleNamespace(device="cpu", start=lambda: 0, peak=lambda: 0)
    operations.CudaCounters = lambda: sees_nothing
    return operations.on_gpu(name, options)


def test_a_script_is_watched_while_it_trains():
    """Its own main() runs; both passes are seen, in each update that is watched."""
    options = ["--preset", "tiny", "--data", "fake", "--no-pretrained"]
    (rows,) = run_jobs([(watched_for_real, "04_batchsize/train", options)])
    product = [row for row in rows if row["operation"] == "aten.mm.default"]
    assert {row["pass"] for row in product} == {"backward", "forward or step"}
    assert all(row["calls"] % operations.WATCHED == 0 for row in rows)
    assert all((row["measured"], row["formula"]) == (0, 32 * 2**20) for row in product)
    sums = [row for row in rows if row["operation"] == "aten.sum.dim_IntList"]
    assert sums and all(row["inputs"].endswith("bfloat16") for row in sums)


def test_counters_of_cuda(monkeypatch):
    """The names of the counters are PyTorch's; on a computer without a GPU nothing more is seen."""
    assert '"requested_bytes.' in torch.cuda.memory_stats.__doc__
    stats = {"requested_bytes.all.current": 7, "requested_bytes.all.peak": 9}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: stats.update(reset=True))
    counters = operations.CudaCounters()
    assert (counters.start(), counters.peak()) == (7, 9) and stats["reset"]


def test_what_is_outside_the_allocator(monkeypatch):
    told = types.SimpleNamespace(stdout="")
    monkeypatch.setattr(context.subprocess, "run", lambda *_, **__: told)
    assert context.used() is None
    told.stdout = "1024\n"
    assert context.used() == 2**30
    outside = {"outside": {"first tensor": 500 * 2**20}, "outside_by_nvidia_smi": 2**30}
    said = report.context({**CARD, **outside, "before": 0})
    assert said.endswith("in MiB: after first tensor 500; by nvidia-smi 1024")


def test_names_of_files(tmp_path):
    its = store.Store(tmp_path, "NVIDIA A100-SXM4-80GB")
    assert its.measured_file(1).name == "nvidia-a100-sxm4-80gb.jsonl"
    assert its.measured_file(4).name == "nvidia-a100-sxm4-80gb-4-gpus.jsonl"
    assert store.Store(tmp_path, None).measured_file(1).name == "cpu.jsonl"
    assert pieces.TESTS.is_file()


def test_a_piece_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "LONGEST", 1)
    code, why = pieces.started(["-c", "import time; time.sleep(60)"], tmp_path / "log")
    assert code is None and why == "not done after 1 s; the same command goes on"
