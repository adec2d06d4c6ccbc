"""Promise: what is interrupted ends at once, leaves no process behind, and loses no measurement."""

import os
import signal
import subprocess
import sys
import time

import psutil
from conftest import ROOT, cpu_only, paint, run

from shared.records.record import read


def test_interrupted_it_leaves_no_processes_and_goes_on_where_it_stopped(tmp_path):
    options = ["01", "08", "--preset", "tiny", "--devices", "2", "--max-steps", "4"]
    options += ["--out", str(tmp_path)]
    command = [sys.executable, "-m", "shared.ladder", *options]
    process = subprocess.Popen(
        command, cwd=ROOT, env=cpu_only(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    log, deadline = tmp_path / "logs" / "08_fsdp_train.log", time.monotonic() + 120
    while not (log.exists() and "loss" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)  # until the processes of 08 are training
    inside = psutil.Process(process.pid).children(recursive=True)
    assert len(inside) >= 2
    os.kill(process.pid, signal.SIGINT)
    printed = process.communicate(timeout=30)[0].decode()
    assert process.returncode == 130 and "interrupted" in printed and "Traceback" not in printed
    _, alive = psutil.wait_procs(inside, timeout=10)
    assert not alive
    file = tmp_path / "ladder.jsonl"
    records, broken = read(file)
    assert [r["script"] for r in records] == ["01_baseline/train"] and broken == 0
    with file.open("a") as f:
        f.write(file.read_text()[:100])  # as a computer that was switched off leaves it
    printed = run("-m", "shared.ladder", *options)
    assert printed.count("measured before") == 1 and "08_fsdp/train            done" in printed
    assert "1 unreadable line" in printed
    again, broken = read(file)
    assert broken == 0 and [r["script"] for r in again] == ["01_baseline/train", "08_fsdp/train"]
    assert again[0] == records[0]


def test_interrupted_stage_says_so_once(tmp_path):
    for name in ("red", "blue"):
        paint(tmp_path / name, 120, name)  # from files, so that the loaders have workers
    command = [
        sys.executable,
        "08_fsdp/train.py",
        "--devices",
        "2",
        "--preset",
        "tiny",
        "--data",
        str(tmp_path),
        "--epochs",
        "20",
    ]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=cpu_only(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
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
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "08_fsdp/plain.py",
        "--preset",
        "tiny",
        "--epochs",
        "20",
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, env=cpu_only(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    printed = b""
    while b"loss" not in printed:  # training
        chunk = process.stderr.read1()
        assert chunk, printed.decode()
        printed += chunk
    family = psutil.Process(process.pid).children()
    assert len(family) == 2
    next(p for p in family if p.environ()["RANK"] == "1").kill()
    printed = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 1
    assert (
        "08_fsdp/plain.py: stopped by torchrun, since another process of this training has ended"
        in printed
        or "08_fsdp/plain.py: another process of this training has ended" in printed
    )
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_a_process_that_waits_in_vain_can_be_ended():
    """The main thread is inside one long call, as when it waits for a GPU."""
    script = (
        "import ctypes, sys; sys.path.insert(0, '.'); from shared.images import cli; sys.argv ="
        " ['08_fsdp/plain.py']\n"
    )
    script += (
        "def main():\n    print('waiting', flush=True)\n    import torch; a = torch.ones(9000,"
        " 9000); a @ a @ a @ a\ncli.run(main)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=cpu_only(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "waiting\n"
    process.terminate()
    assert "08_fsdp/plain.py: interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
