"""Promise: what is killed or interrupted leaves no process behind, and nothing saved is lost."""

import contextlib
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from string import Template

import psutil
import pytest
from conftest import ROOT, cpu_only, paint, run
from machines import of_slurm
from made import textures

from shared.cli import UserError
from shared.ladder.before import alone
from shared.records.views import read

TINY = ("--preset", "tiny")


@contextlib.contextmanager
def started(*command):
    """Starts a Python command in a session of its own, with a pipe for what it prints."""
    words = [sys.executable, *map(str, command)]
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    process = subprocess.Popen(words, cwd=ROOT, env=cpu_only(), **kept)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(process, what):
    """Reads what a process prints until something is in it, and returns its descendants."""
    printed = b""
    while what not in printed:
        chunk = process.stdout.read1()
        assert chunk, printed.decode()
        printed += chunk
    return psutil.Process(process.pid).children(recursive=True)


def ended(process, family):
    """Returns what a process still printed before it ended; all of its family have ended, too."""
    printed = process.communicate(timeout=60)[0].decode()
    assert not psutil.wait_procs(family, timeout=20)[1]
    return printed


@pytest.mark.parametrize("n, name", [(1, "06_sgd/train"), (4, "08_fsdp/plain")])
def test_killed_at_any_update_it_goes_on_with_the_same_losses(n, name, tmp_path):
    data = textures(tmp_path / "data", 100)
    options, out = [*TINY, "--epochs", "2", "--data", str(data)], tmp_path / "out.jsonl"
    keep = ["--save", str(tmp_path / "saved"), "--save-minutes", "1e-9"]

    def train(*trainings, code=0):
        run("tests/resumed.py", n, out, name, json.dumps(trainings), code=code)

    at = random.Random(n).randint(4, 9)
    train([0, options], [-at, [*options, *keep]], code=-9 if n == 1 else 1)
    [checkpoint] = (tmp_path / "saved").glob("checkpoint-*[0-9]")
    train([0, [*options, *keep, "--resume"]])
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    record, last = [line for line in lines if isinstance(line, dict)]
    updates = [line[1:] for line in lines if isinstance(line, list)]
    losses = dict(updates[:10])  # of the training without a break
    assert list(losses) == list(range(10)) and len(updates) >= 10 + at + 10 - at
    assert all(seen == losses[update] for update, seen in updates[10:])
    for key in ("load", "test_accuracy", "train_accuracy", "first_loss", "last_loss", "steps"):
        assert last[key] == record[key], key
    assert last["resumed_at"] == (at - 1) // 3 * 3 == int(checkpoint.name[-9:])


def test_an_interrupted_ladder_goes_on_where_it_stopped(tmp_path):
    command = ["-m", "shared.ladder", "01", "08", *TINY, "--devices", 2, "--max-steps", 9]
    command += ["--out", tmp_path]
    log, file = tmp_path / "logs" / "08_fsdp_train.log", tmp_path / "ladder.jsonl"
    with started(*command) as process:
        deadline = time.monotonic() + 200
        while not (log.exists() and "loss" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
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


def test_a_killed_ladder_leaves_no_process_behind(tmp_path):
    command = ["-m", "shared.ladder", "08", *TINY, "--devices", 2, "--epochs", 9, "--out", tmp_path]
    log = tmp_path / "logs" / "08_fsdp_train.log"
    with started(*command) as process:
        until(process, b"starts")
        while not (log.exists() and "loss" in log.read_text()):
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 4
        process.kill()
        ended(process, family)


def test_a_folder_belongs_to_one_ladder(tmp_path):
    with alone(tmp_path):
        with pytest.raises(UserError, match="in use by another ladder"):
            alone(tmp_path).__enter__()
    with alone(tmp_path):  # it is free again
        pass


def test_ctrl_c_ends_all_processes_of_a_stage(tmp_path):
    for name in ("red", "blue"):
        paint(tmp_path / name, 120, name)  # from files, so that the loaders have workers
    options = (*TINY, "--devices", 2, "--data", tmp_path, "--epochs", 20)
    with started("08_fsdp/train.py", *options) as p:
        family = until(p, b"loss")
        os.killpg(p.pid, signal.SIGINT)  # as Ctrl-C does: every process of the group
        printed = ended(p, family)
    assert p.returncode == 130 and len(family) > 1
    assert printed.count("interrupted") == 1 and "Traceback" not in printed


def test_one_killed_process_ends_the_others():
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", 2)
    with started(*torchrun, "08_fsdp/plain.py", *TINY, "--epochs", 20) as p:
        family = until(p, b"loss")
        [second] = [child for child in family if child.environ().get("RANK") == "1"]
        second.kill()
        ended(p, family)
    assert p.returncode == 1


def test_a_mistake_that_several_processes_notice_is_said_once():
    printed = run("08_fsdp/train.py", *TINY, "--devices", 2, "--data", "nowhere", code=2)
    assert printed.count("train.py: --data nowhere") == 1 and "Traceback" not in printed


def test_two_machines(tmp_path):
    """As the page's batch file for SLURM starts them, both on this one."""
    page = (ROOT / "08_fsdp" / "README.md").read_text(encoding="utf-8")
    [command] = re.findall(r"(?s)^srun (.*?)\n```", page, re.MULTILINE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        command = command.replace("29500", str(free.getsockname()[1]))
    variables = {"first": "localhost", **of_slurm(2, 0)}
    _, words = Template(command.replace("\\\n", "")).substitute(variables).split(" torchrun ")
    *options, script = shlex.split(words)
    its = (script, *TINY, "--max-steps", 3)
    machines = tmp_path / "machines.jsonl"
    here = (*options, "--local-addr", "localhost", *its, "--record", machines)
    run("tests/long/machines.py", *here)
    one = tmp_path / "one.jsonl"
    run("tests/forks.py", 4, *its, "--record", one)
    [[two], [four]] = (read(file)[0] for file in (machines, one))
    assert (two["script"], two["world_size"]) == ("08_fsdp/train", 4)
    for key in ("first_loss", "last_loss", "test_accuracy", "load", "train"):
        assert two[key] == four[key], key
