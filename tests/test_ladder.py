"""Promise: every stage runs, and holds less memory than the one before."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from conftest import NAMES, ROOT, SHARDED, TEXT, cpu_only, paint, run

from shared import UserError, stages, tables
from shared import ladder as ladder_module


def peaks(records, phase):
    return [records[name][phase]["device_peak_gb"] for name in NAMES]


def test_every_stage_has_a_record(ladder):
    _, printed, records = ladder
    assert list(records) == NAMES + TEXT
    for name in NAMES + TEXT:
        assert name in printed
        assert records[name]["world_size"] == (4 if name in SHARDED or name == "11_llm/train" else 1)
        assert records[name]["steps"] > 3


@pytest.mark.parametrize("before, after", list(zip(NAMES[:8], NAMES[1:9])))
def test_training_peak_falls(ladder, before, after):
    records = ladder[2]
    if after == "07_init_module":  # is about loading
        assert records[after]["train"]["device_peak_gb"] <= records[before]["train"]["device_peak_gb"]
        assert records[after]["load"]["device_peak_gb"] < records[before]["load"]["device_peak_gb"]
    else:
        assert records[after]["train"]["device_peak_gb"] < records[before]["train"]["device_peak_gb"]


def test_loading_without_a_second_copy(ladder):
    # 06 holds the model and the state dict, both in fp32; 07 one copy in bf16, and the file is mapped.
    records = ladder[2]
    weights = records["07_init_module"]["train"]["breakdown_gb"]["parameters"]
    assert records["06_sgd"]["load"]["device_peak_gb"] == pytest.approx(4 * weights, rel=0.01)
    assert records["07_init_module"]["load"]["device_peak_gb"] == pytest.approx(weights, rel=0.02)


def test_each_stage_saves_what_its_page_says(ladder):
    held = {name: ladder[2][name]["train"]["breakdown_gb"] for name in NAMES}
    assert held["02_mixed_precision"]["activations"] < 0.65 * held["01_baseline"]["activations"]
    assert held["02_mixed_precision"]["parameters"] == held["01_baseline"]["parameters"]
    assert held["03_bf16"]["parameters"] == held["01_baseline"]["parameters"] / 2
    assert held["03_bf16"]["optimizer states"] == pytest.approx(held["01_baseline"]["optimizer states"] / 2, rel=0.001)
    assert held["04_batchsize"]["activations"] == pytest.approx(held["03_bf16"]["activations"] / 4, rel=0.01)
    assert held["05_grad_accum"]["activations"] == pytest.approx(held["04_batchsize"]["activations"] / 4, rel=0.01)
    assert "optimizer states" in held["05_grad_accum"] and "optimizer states" not in held["06_sgd"]
    assert held["08_fsdp"]["parameters"] == pytest.approx(held["07_init_module"]["parameters"] / 4, rel=0.05)
    assert held["09_act_ckpt"]["activations"] < held["08_fsdp"]["activations"] / 4
    assert "recomputed" in held["09_act_ckpt"] and "recomputed" not in held["08_fsdp"]


def test_breakdown_adds_up_to_the_peak(ladder):
    for record in ladder[2].values():
        for phase in ("load", "train"):
            assert sum(record[phase]["breakdown_gb"].values()) == pytest.approx(record[phase]["device_peak_gb"], rel=1e-9)


def test_fine_tuning_works_at_every_stage(ladder):
    accuracy = [ladder[2][name]["test_accuracy"] for name in NAMES]
    assert min(accuracy) >= 0.93
    assert min(accuracy) >= accuracy[0] - 0.03


def test_offloading_changes_no_loss(ladder):
    assert ladder[2]["10_offload"]["last_loss"] == ladder[2]["09_act_ckpt"]["last_loss"]


def test_unmeasured_is_null(ladder):
    for record in ladder[2].values():
        assert record["train"]["device_reserved_gb"] is None  # there is no caching allocator on a CPU
        assert record["train"]["host_peak_gb"] is None


def test_picture(ladder):
    assert (ladder[0] / "ladder.png").read_bytes().startswith(b"\x89PNG")


def test_goes_on_where_it_stopped(ladder):
    out, _, records = ladder
    file = out / "ladder.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    try:
        file.write_text("".join(lines[:4]) + lines[4][:100])  # as a computer that was switched off leaves it
        printed = run("-m", "shared.ladder", "--preset", "tiny", "--stages", "01-05", "--out", out)
        assert printed.count("measured before") == 4
        assert "05_grad_accum        done" in printed
        assert "1 unreadable line" in printed
        again, broken = stages.records(file)
        assert broken == 0 and [r["stage"] for r in again] == NAMES[:5]
        assert again[4]["train"] == records["05_grad_accum"]["train"]  # to the byte
    finally:
        file.write_text("".join(lines))


def test_a_stage_that_fails_is_shown_and_the_others_run(tmp_path):
    printed = run("-m", "shared.ladder", "--preset", "tiny", "--stages", "08,06", "--devices", 3, "--max-steps", 4, "--out", tmp_path, code=1)
    assert "08_fsdp              FAILED" in printed
    assert "a batch of 16 images does not divide by 3" in printed
    assert "06_sgd               done" in printed
    assert [r["stage"] for r in stages.records(tmp_path / "ladder.jsonl")[0]] == ["06_sgd"]


def runs(process, script):
    try:
        return script in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_no_processes_and_a_usable_file(tmp_path, number):
    command = [sys.executable, "-m", "shared.ladder", "--preset", "tiny", "--stages", "06,08", "--max-steps", "4", "--out", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, env=cpu_only(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    inside = []
    while len(inside) < 4 and time.monotonic() < deadline:  # until the four processes of 08 are there
        time.sleep(0.2)
        inside = [p for p in psutil.Process(process.pid).children(recursive=True) if runs(p, "08_fsdp")]
    assert len(inside) == 4
    os.kill(process.pid, number)
    printed = process.communicate(timeout=30)[0].decode()
    assert process.returncode == 130 and "interrupted" in printed and "Traceback" not in printed
    _, alive = psutil.wait_procs(inside, timeout=10)
    assert not alive
    records, broken = stages.records(tmp_path / "ladder.jsonl")
    assert [r["stage"] for r in records] == ["06_sgd"] and broken == 0


def test_interrupted_stage_says_so_once(tmp_path):
    for name in ("red", "blue"):
        paint(tmp_path / name, 400, name)  # from files, so that the loaders have workers
    command = [sys.executable, "08_fsdp/train.py", "--preset", "tiny", "--data", str(tmp_path), "--epochs", "20"]
    process = subprocess.Popen(command, cwd=ROOT, env=cpu_only(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    printed = b""
    while b"loss" not in printed:  # training
        printed += process.stderr.read1()
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: every process of the group
    printed = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 130
    assert printed.count("interrupted") == 1 and "Traceback" not in printed
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_one_killed_process_ends_the_others():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "08_fsdp/plain.py", "--preset", "tiny", "--epochs", "20"]
    process = subprocess.Popen(command, cwd=ROOT, env=cpu_only(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    printed = b""
    while b"loss" not in printed:  # training
        chunk = process.stderr.read1()
        assert chunk, printed.decode()
        printed += chunk
    family = psutil.Process(process.pid).children()
    assert len(family) == 4
    next(p for p in family if p.environ()["RANK"] == "2").kill()
    printed = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 1
    assert "08_fsdp/plain.py: stopped by torchrun, since another process of this training has ended" in printed or "08_fsdp/plain.py: another process of this training has ended" in printed
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_a_process_that_waits_in_vain_can_be_ended():
    """The main thread is inside one long call, as when it waits for a GPU, and does not come back to Python."""
    script = "import ctypes, sys; sys.path.insert(0, '.'); from shared import cli; sys.argv = ['08_fsdp/plain.py']\n"
    script += "def main():\n    print('waiting', flush=True)\n    import torch; a = torch.ones(9000, 9000); a @ a @ a @ a\ncli.run(main)"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=cpu_only(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    process.terminate()
    assert "08_fsdp/plain.py: interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130


def test_select():
    assert stages.select(["01-03,08"], "--stages") == stages.select(["03", "01-02", "08_fsdp/"], "stage") == ["01_baseline", "02_mixed_precision", "03_bf16", "08_fsdp"]
    for wrong in ("", "1-", "a", "00", "3-2", "01-99", "1,,2"):
        with pytest.raises(UserError, match="--stages"):
            stages.select([wrong], "--stages")


def test_predictions_stand_beside_what_was_measured(ladder):
    lines = ladder[1].splitlines()
    assert "Warning" not in ladder[1]
    heading = next(line.split() for line in lines if line.startswith("stage "))
    assert heading[:6] == ["stage", "load", "MB", "train", "MB", "predicted"]
    for name, record in ladder[2].items():
        cells = next(line.split() for line in reversed(lines) if line.startswith(name))
        assert cells[2] == cells[3] == f"{record['train']['device_peak_gb'] * 1000:.2f}"


def test_a_prediction_that_fails_loses_no_measurement(tmp_path, monkeypatch, capsys):
    def fail(jobs):
        raise KeyError("a private name")

    record = {"stage": "06_sgd", "script": "train", "image_px": 32, "world_size": 1, "input_shapes": [[16, 3, 32, 32]]}
    monkeypatch.setattr(ladder_module.workers, "run", fail)
    args = SimpleNamespace(accelerator="cpu", preset="tiny", model="vit_tiny", num_classes=10)
    assert ladder_module.predict({"06_sgd": args}, [record]) == {}
    assert capsys.readouterr().out == "- no predictions: KeyError: 'a private name'\n"


def test_table_names_the_unit_and_what_was_saved():
    def record(stage, gb):
        phase = {"device_peak_gb": gb, "device_reserved_gb": None, "host_peak_gb": None}
        return {"stage": stage, "script": "train", "image_px": 32, "load": phase, "train": phase, "images_per_second": None, "test_accuracy": 0.5}

    heading, first, second = tables.measured([record("01_a", 2.0), record("02_b", 1.0)], {})
    assert heading.split() == ["stage", "load", "GB", "train", "GB", "vs", "before", "vs", "first", "test", "acc."]
    assert first.split() == ["01_a", "2.00", "2.00", "50.0%"]
    assert second.split() == ["02_b", "1.00", "1.00", "-50.0%", "2.0x", "less", "50.0%"]
