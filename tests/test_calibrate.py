"""Promise: on the day there is a GPU, one command says how right the predictions are."""

import json
import os
import types

import pytest
import torch
from conftest import ROOT, TEXT, read_json, run

from shared.calibrate import command, context, operations, packages, pieces, report, store
from shared.common.errors import UserError
from shared.lessons import on_gpus, parts, stored
from shared.predict import cards
from shared.predict.jobs import Wanted, run_jobs
from shared.records.record import TINY_MEASURED, by_script, read, read_list

# What `python -m shared.calibrate` must do without: for texts, pages, pictures and tests.
OPTIONAL = packages.listed().keys() - set(packages.NEEDED)
ALSO = {"sklearn", "tokenizers", "markdown_it", "Pygments", "Jinja2", "watermark"}  # other names
CARD = {
    "name": "NVIDIA H200",
    "total_memory": 150_000_000_000,
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "max_threads_per_multi_processor": 2048,
    "before": None,
    "outside": {"first tensor": 500 * 2**20},
    "outside_by_nvidia_smi": None,
}


def calibrate(*options, **env):
    return run("-m", "shared.calibrate", *options, **env)


def test_without_a_gpu_it_tests_itself(tmp_path):
    """Interrupted, it goes on; what is there is not measured again; predictions are right.

    All that without the packages that only some scripts need.
    """
    path = f"{ROOT / 'tests' / 'without'}{os.pathsep}{ROOT}"
    gone = {"PYTHONPATH": path, "WITHOUT": ",".join(OPTIONAL | ALSO)}
    options = ["05", "06", "11", "--out", tmp_path, "--minutes"]
    first = calibrate(*options, 0.0001, **gone)
    measured = tmp_path / "cpu.jsonl"
    assert [r["script"] for r in read(measured)[0]] == ["05_grad_accum/train"]
    assert "06_sgd/train" in first.partition("- left, about ")[2]
    assert "- the same command goes on" in first
    second = calibrate(*options, 8, **gone)
    records = read(measured)[0]
    assert [r["script"] for r in records] == ["05_grad_accum/train", "06_sgd/train"]
    assert "05_grad_accum/train  " in second and "left, about" not in second
    assert "05_grad_accum/train starts" not in second
    for name in OPTIONAL:
        assert f"- not installed: {name}, for: {packages.listed()[name]}" in second
    for name in TEXT:
        assert f"- left out: {name}: transformers is needed and not installed" in second
    checked = read_list(tmp_path / "cpu-checked.json")
    for p in checked:
        assert p["measured"]["steps"] == pieces.UPDATES and p["measured"]["world_size"] == 1
        assert p["train"]["device_peak_gb"] == p["measured"]["train"]["device_peak_gb"]
        assert p["measured"]["images_per_second"] > 0
        assert p["measured"]["ladder"] == "python -m shared.calibrate"
    assert "2 predictions; allocated: the largest error is +0.00%" in second
    found = read_json(tmp_path / "cpu-operations.json")["operations"]
    assert list(found) == ["05_grad_accum/train"]
    assert "formulas: 3 of 3 operations as measured" in second and "simulated GPU" in second


def test_what_it_needs_itself_it_names():
    path = f"{ROOT / 'tests' / 'without'}{os.pathsep}{ROOT}"
    needs = ["-m", "shared.calibrate"]
    printed = run(*needs, code=2, PYTHONPATH=path, WITHOUT="torchmetrics,psutil")
    last = "torchmetrics, psutil: needed and not installed: pip install torchmetrics psutil"
    assert printed.splitlines()[-1] == f"python -m shared.calibrate: {last}"


def falsified(name, options, bytes_of):
    """Returns what is found wrong on a simulated GPU that allocates more: (operation, bytes)."""
    (rows,) = run_jobs([(operations.simulated, name, options, bytes_of)])
    found = [(row["operation"], operations.difference(row)) for row in rows]
    return {pair for pair, row in zip(found, rows) if not operations.right(row)}, rows


@pytest.mark.parametrize("card, version", [("a100", (2, 11)), ("h100", (2, 15))])
def test_a_wrong_formula_is_found_and_no_other(card, version):
    options = Wanted("gpu", "tiny", card=cards.CARDS[card], torch=version)
    wrong, rows = falsified("03_bf16/train", options, None)
    assert wrong == set() and len(rows) > 4
    summed = "aten.sum.dim_IntList"
    wrong, _ = falsified("03_bf16/train", options, {summed: 5_000_000})
    assert wrong == {(summed, 5_000_000)}


def test_an_operation_without_a_formula_is_listed():
    options = Wanted("gpu", "tiny")
    more = {"aten.gelu.default": 2_000_000, "aten.gelu_backward.default": 20_000}
    wrong, rows = falsified("01_baseline/train", options, more)
    assert wrong == {("aten.gelu.default", 2_000_000)}
    pairs = report.compared({"01_baseline/train": {"rows": rows}})
    assert report.table(pairs)[1][0] == "gelu" and "not in the table" in report.table(pairs)[1]
    said = report.formulas({"01_baseline/train": {"rows": rows}})
    assert "4 of 4 operations as measured" in said
    assert "the largest error is +2.000 MB, of aten.gelu.default" in said
    assert said.endswith("without a formula, and more than 1 MB: aten.gelu.default")


class NoCounters:
    """Counters that see nothing, on a CPU."""

    device = "cpu"

    def start(self):
        return 0

    peak = start


def watched_for_real(name, options):
    """Trains on this CPU as on_gpu() does on a GPU, with the formulas of an H200 and torch 2.15."""
    properties, cards.INSTALLED = types.SimpleNamespace(**CARD), (2, 15)
    torch.cuda.get_device_properties = lambda _: properties
    operations.CudaCounters = NoCounters
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
    assert "with what other processes use" in report.context(CARD)
    card = {**CARD, "before": 0, "outside_by_nvidia_smi": 2**30}
    assert report.context(card).endswith("in MiB: after first tensor 500; by nvidia-smi 1024")


@pytest.mark.parametrize(
    "options, said",
    [
        (["12"], "there is no stage 12"),
        (["06_sgd/sgd"], "there is no such script"),
        (["--minutes", "0"], "0 is not a positive number"),
        (["--preset", "full"], "there is no CUDA device here"),
        (["--results", "shared/results"], "shared/results is for GPUs and the full preset"),
        (["--out", str(ROOT / "README.md")], "--out .*README.md"),
    ],
)
def test_mistakes(options, said):
    with pytest.raises(UserError, match=said):
        command.main(options)


def test_names_of_files(tmp_path):
    names = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla T4", "???")
    slugs = ["nvidia-h200", "nvidia-a100-sxm4-80gb", "tesla-t4", "gpu"]
    assert list(map(store.slug, names)) == slugs
    its = store.Store(tmp_path, "NVIDIA H200")
    assert its.measured_file(1).name == "nvidia-h200.jsonl"
    assert its.measured_file(4).name == "nvidia-h200-4-gpus.jsonl"
    assert store.Store(tmp_path, None).measured_file(1).name == "cpu.jsonl"
    for text in ("", "7", "[1]"):
        its.checked_file.write_text(text)
        with pytest.raises(UserError, match="nvidia-h200-checked.json is damaged"):
            store.Store(tmp_path, "NVIDIA H200")


def record_of(name, n):
    """Returns a measurement as if it had been made at full size on a GPU."""
    (predicted,) = (r for r in stored.predictions().values() if r["script"] == name)
    tiny = by_script(read(TINY_MEASURED)[0])[name]
    same = {key: tiny[key] for key in ("epochs", "test_accuracy", "git_commit", "versions")}
    same |= {"steps": pieces.UPDATES, "images_per_second": 100.0, "dataset": "fake"}
    same |= {"first_loss": 2.3, "last_loss": 2.2}
    shapes = 2 * [[predicted["batch_size"] // n, 3, 224, 224]]
    return {**predicted, **same, "device": CARD["name"], "world_size": n, "input_shapes": shapes}


def test_on_the_day(tmp_path, monkeypatch, capsys):
    """All that the command does with four GPUs, but for what a GPU would answer."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(command, "in_child", lambda *_: (CARD, None))
    row = {"operation": "aten.mm.default", "inputs": "2x2 float32", "pass": "backward", "calls": 3}
    rows = [{**row, "measured": 40_000_000, "formula": 33_554_432}]
    watched, ran = [], []

    def in_child(file, arguments):
        watched.append(arguments)
        return rows, None

    def run_script(name, options, log, processes, context):
        n = int(options[options.index("--devices") + 1]) if "--devices" in options else 1
        ran.append((name, processes, context, "--model vit_l_16" in " ".join(options), n))
        return (None, "out of memory") if name == "03_bf16/train" else (record_of(name, n), "")

    def run_jobs(jobs):  # simulations, which other tests run
        here = {"device": f"simulated {jobs[0][2].card.title}"}
        known = stored.predictions()
        return [{**known[name], **here, "world_size": w.devices} for _, name, w in jobs]

    monkeypatch.setattr(pieces, "in_child", in_child)
    monkeypatch.setattr(pieces, "run_script", run_script)
    monkeypatch.setattr(pieces, "run_jobs", run_jobs)
    options = ["03", "05", "08", "--out", str(tmp_path / "out"), "--results", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        command.main(options)
    assert end.value.code == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "- FAILED: 03_bf16/train: out of memory"
    assert ran == [
        ("03_bf16/train", None, None, True, 1),
        ("05_grad_accum/train", None, None, True, 1),
        ("08_fsdp/train", None, None, True, 1),
        ("08_fsdp/train", None, None, True, 4),
    ]
    assert [arguments[:2] for arguments in watched] == [
        ["--script", "03_bf16/train"],
        ["--script", "05_grad_accum/train"],
    ]
    assert list(by_script(read(tmp_path / "nvidia-h200.jsonl")[0])) == [ran[1][0], ran[2][0]]
    assert list(by_script(read(tmp_path / "nvidia-h200-4-gpus.jsonl")[0])) == [ran[3][0]]
    checked = read_list(tmp_path / "nvidia-h200-checked.json")
    assert [p["world_size"] for p in checked] == [1, 1, 4]
    assert {p["device"] for p in checked} == {"simulated H200"}
    assert "formulas: 0 of 1 operations as measured; the largest error is +6.446 MB" in printed
    assert "08_fsdp/train, 4 GPUs" in printed
    about = json.loads((tmp_path / "nvidia-h200-operations.json").read_text())
    assert about["context"] == CARD and len(about["operations"]) == 2

    monkeypatch.setattr(stored, "RESULTS", tmp_path)
    shown = on_gpus.part(ROOT / "shared")
    assert "| 08_fsdp/train, 4 GPUs |" in shown and "+6.446" in shown
    assert "Measured with `python -m shared.calibrate`" in shown
    shown = parts.measured(ROOT / "08_fsdp")
    assert ", on NVIDIA H200:" in shown and ", on 4 x NVIDIA H200:" in shown


def test_there_may_be_none(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "RESULTS", tmp_path)
    assert on_gpus.part(ROOT / "shared") == "There is no measurement on a GPU yet."


def test_the_tests_of_the_gpu_are_called(tmp_path, monkeypatch):
    """In two parts; a part that has passed is not run again; one that fails is told."""
    its = store.Store(tmp_path, CARD["name"])
    (tmp_path / "logs").mkdir()
    work = pieces.Work("full", tmp_path, "python -m shared.calibrate", CARD, 1, its)
    called = []

    def started(arguments, log, **environment):
        called.append((arguments, environment))
        return (1, "3 failed") if arguments[-1] == "plain" else (0, "20 passed")

    monkeypatch.setattr(pieces, "started", started)
    monkeypatch.setattr(packages, "missing", dict)
    found = [piece.run() for piece in work.tests()]
    assert found[0] is None and found[1].startswith("3 failed")
    assert all(str(ROOT / "tests" / "test_cuda.py") in arguments for arguments, _ in called)
    assert called[0][1] == {"CUDA_TESTS": str(tmp_path / "tests-nvidia-h200")}
    assert its.about["tests"]["not plain"]["said"] == "20 passed"
    monkeypatch.setattr(packages, "missing", lambda: {"transformers": "texts", "jinja2": "pages"})
    assert not list(work.tests())
    assert work.left_out == {"tests/test_cuda.py": "not installed: transformers"}


def test_a_piece_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "LONGEST", 1)
    code, why = pieces.started(["-c", "import time; time.sleep(60)"], tmp_path / "log")
    assert code is None and why == "not done after 1 s; the same command goes on"
