"""Promise: a killed or interrupted run leaves no process behind and loses nothing saved."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import ROOT, cpu_only, run
from helpers.resuming import OFTEN
from helpers.sample_files import textures
from helpers.today import some

from shared.lab.records.reading import read
from shared.lab.records.running import forks, run_script

TINY = ("--preset", "tiny")
# A script that is killed while its DataLoader worker starts: that worker finds another parent.
LATE = """
import os, signal, time
from torch.utils.data import DataLoader

script, (reader, writer) = os.getpid(), os.pipe()

def start(_):
    os.write(writer, str(os.getpid()).encode())
    while os.getppid() == script:
        time.sleep(0.01)

options = {"num_workers": 1, "multiprocessing_context": "fork", "worker_init_fn": start}
examples = iter(DataLoader(range(2), **options))
print("worker", os.read(reader, 99).decode(), flush=True)
os.kill(script, signal.SIGKILL)
"""
SAME = ["load", "test_accuracy", "val_accuracy", "train_accuracy", "first_loss", "last_loss"]
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", 2)


def killed_and_resumed(n, name, at, folder, *options):
    """Train once without interruption and once killed after an update; compare the two runs.

    The losses of all updates, the saved bytes and, for one process, the peak memory must be the
    same.

    Args:
        n: number of processes.
        name: of the script.
        at: the update after which the processes are killed.
        folder: for the output; the killed run saves in folder/killed.
        options: of the script, for ten updates in two epochs.
    """

    def train(at, where, *more, code=0):
        out = folder / f"{where}.jsonl"
        keep = ["--preset", "tiny", "--epochs", 2, "--save", folder / where, *OFTEN, *more]
        run("tests/helpers/kill_and_resume.py", n, out, name, at, *options, *keep, code=code)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        return lines[-1], [line for line in lines if isinstance(line, list)]

    whole, losses = train(0, "whole")
    _, before = train(at, "killed", code=-9 if n == 1 else 1)
    [checkpoint] = (folder / "killed").glob("checkpoint-*[0-9]")
    assert len([*checkpoint.iterdir()]) == n
    last, seen = train(0, "killed", "--resume")
    first = (at - 1) // 3 * 3  # the last checkpoint; there is one after every third update
    assert [update for update, _ in losses] == [*range(10)] and len(losses[0][1]) == n
    assert before == losses[:at] and seen == [*before, *losses[first:]]
    assert (whole["resumed_at"], last["resumed_at"]) == (None, first)
    assert {key: last[key] for key in SAME} == {key: whole[key] for key in SAME}
    # Tensors read from a file have storages of their own; shards share some.
    parts = [record["train"]["breakdown_gb"] for record in (whole, last)]
    assert parts[0].keys() == parts[1].keys()
    if n == 1:  # 16 bytes: the counts of the accuracy, which a new epoch allocates anew
        assert parts[0] == pytest.approx(parts[1], rel=0, abs=16.5e-9)
    kept = [{f.name: f.read_bytes() for f in (folder / w).iterdir()} for w in ("whole", "killed")]
    assert kept[0] == kept[1] and "config.json" in kept[0]


@contextlib.contextmanager
def started(*command):
    """Start a Python command in a session of its own, with a pipe for its output."""
    words = [sys.executable, *map(str, command)]
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    # The tests may have been started with these signals ignored, for example by nohup.
    heard = [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)]
    process = subprocess.Popen(words, cwd=ROOT, env=cpu_only(), **kept)
    for number, before in zip((signal.SIGINT, signal.SIGHUP), heard):
        signal.signal(number, before)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(process, what):
    """Read the output of a process until it contains a text; return its descendants."""
    printed = b""
    while what not in printed:
        chunk = process.stdout.read1()
        assert chunk, printed.decode()
        printed += chunk
    return psutil.Process(process.pid).children(recursive=True)


def until_training(process, folder):
    """Wait until a ladder trains with 08_fsdp/train; return its descendants."""
    log, deadline = folder / "logs" / "08_fsdp_train.log", time.monotonic() + 200
    while not (log.exists() and "loss" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return psutil.Process(process.pid).children(recursive=True)


def ended(process, family):
    """Return the remaining output of a process; check that its descendants have ended, too."""
    printed = process.communicate(timeout=60)[0].decode()
    assert not psutil.wait_procs(family, timeout=10)[1]
    return printed


# Pictures that are cropped and a schedule; a plain script; texts, dropout and Adam. With more than
# two processes, DDP adds the gradients of its first update in another order.
CASES = [(1, "06_sgd/train"), (4, "08_fsdp/plain"), (2, "08_fsdp/ddp"), (4, "11_llm/train")]


@pytest.mark.parametrize("n, name", some("kills", CASES, 2))
def test_killed_at_any_update_it_goes_on_with_the_same_losses(n, name, tmp_path):
    at = random.Random(name).randint(4, 9)
    data = ["--limit", 60] if name[:2] == "11" else ["--data", textures(tmp_path / "data", 100)]
    killed_and_resumed(n, name, at, tmp_path, *data)


def test_an_interrupted_ladder_goes_on_where_it_stopped(tmp_path):
    command = ["-m", "shared", "ladder", "01", "08", *TINY, "--devices", 2, "--max-steps", 9]
    command += ["--out", tmp_path]
    file = tmp_path / "ladder.jsonl"
    with started(*command) as process:
        family = until_training(process, tmp_path)
        assert len(family) >= 2
        process.send_signal(signal.SIGINT)
        printed = ended(process, family)
    assert process.returncode == 130 and "interrupted" in printed and "Traceback" not in printed
    records, broken = read(file)
    assert [r["script"] for r in records] == ["01_baseline/train"] and broken == 0
    with file.open("a") as f:
        f.write(file.read_text()[:100] + "\n")  # half of a line, as a full disk leaves it
    assert run(*command).count("measured before") == 1
    again, broken = read(file)
    assert broken == 1 and [r["script"] for r in again] == ["01_baseline/train", "08_fsdp/train"]
    assert again[0] == records[0]


# The process that gets the signal: the ladder, or the one whose forks run scripts.
@pytest.mark.parametrize("how, victim", [("HUP", 0), ("KILL", 2)])
def test_a_killed_ladder_leaves_no_process_behind(how, victim, tmp_path):
    options = [*TINY, "--devices", 2, "--epochs", 9, "--out", tmp_path]
    with started("-m", "shared", "ladder", "08", *options) as process:
        family = until_training(process, tmp_path)
        assert len(family) >= 4
        os.kill(
            [process.pid, *(child.pid for child in family)][victim], signal.Signals[f"SIG{how}"]
        )
        ended(process, family)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_a_killed_prediction_leaves_no_process_behind(how):
    with started("-m", "shared", "predict", "01", "08") as process:
        # The process that forks for each script, and two forks.
        while len(family := psutil.Process(process.pid).children(recursive=True)) < 3:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(how)
        ended(process, family)


def test_a_killed_torchrun_leaves_no_process_behind():
    with started(*TORCHRUN, "08_fsdp/plain.py", *TINY, "--epochs", 9) as process:
        family = until(process, b"loss")
        process.kill()
        ended(process, family)


def test_a_killed_script_leaves_no_worker_behind_that_starts_later(tmp_path):
    script, log = tmp_path / "late.py", tmp_path / "late.log"
    script.write_text(LATE)
    assert run_script(str(script.with_suffix("")), [], log, context=forks())[0] is None
    worker = int(re.search(r"worker (\d+)", log.read_text())[1])
    deadline = time.monotonic() + 10
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(worker)


def alive(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
