"""Promise: what is killed or interrupted leaves no process behind, and nothing saved is lost."""

import contextlib
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
from conftest import ROOT, cpu_only, run
from made import textures
from test_resume import killed_and_resumed

from shared.cli import UserError
from shared.ladder.before import alone
from shared.records.views import read

TINY = ("--preset", "tiny")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", 2)


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


def until_training(process, folder):
    """Waits until a ladder trains with 08_fsdp/train, and returns its descendants."""
    log, deadline = folder / "logs" / "08_fsdp_train.log", time.monotonic() + 200
    while not (log.exists() and "loss" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return psutil.Process(process.pid).children(recursive=True)


def ended(process, family):
    """Returns what a process still printed before it ended; all of its family have ended, too."""
    printed = process.communicate(timeout=60)[0].decode()
    assert not psutil.wait_procs(family, timeout=10)[1]
    return printed


# With more than two processes, DDP adds the gradients of its first update in another order.
@pytest.mark.parametrize(
    "n, name", [(4, "08_fsdp/plain"), (2, "08_fsdp/ddp"), (1, "11_llm/before")]
)
def test_killed_at_any_update_it_goes_on_with_the_same_losses(n, name, tmp_path):
    at = random.Random(name).randint(4, 9)
    data = ["--limit", 60] if name[:2] == "11" else ["--data", textures(tmp_path / "data", 100)]
    killed_and_resumed(n, name, at, tmp_path, *data)


def test_an_interrupted_ladder_goes_on_where_it_stopped(tmp_path):
    command = ["-m", "shared.ladder", "01", "08", *TINY, "--devices", 2, "--max-steps", 9]
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


def test_a_killed_ladder_leaves_no_process_behind(tmp_path):
    command = ["-m", "shared.ladder", "08", *TINY, "--devices", 2, "--epochs", 9, "--out", tmp_path]
    with started(*command) as process:
        family = until_training(process, tmp_path)
        assert len(family) >= 4
        process.kill()
        ended(process, family)


def test_a_folder_belongs_to_one_ladder(tmp_path):
    with alone(tmp_path):
        with pytest.raises(UserError, match="in use by another ladder"):
            alone(tmp_path).__enter__()
    with alone(tmp_path):  # it is free again
        pass


@pytest.mark.parametrize("end", ["Ctrl-C", "first killed", "second killed"])
@pytest.mark.parametrize("start", [(), TORCHRUN], ids=["Fabric", "torchrun"])
def test_no_process_of_a_training_stays_behind(start, end, tmp_path):
    textures(tmp_path, 240)  # from files, so that the loaders have workers
    command = ("08_fsdp/plain.py",) if start else ("08_fsdp/train.py", "--devices", 2)
    with started(*start, *command, *TINY, "--data", tmp_path, "--epochs", 20) as p:
        family = until(p, b"loss")
        assert len(family) > 2
        if end == "Ctrl-C":
            os.killpg(p.pid, signal.SIGINT)  # every process of the group gets it
        elif end == "first killed":
            p.kill()
        else:
            [second, *_] = [c for c in family if c.environ().get("LOCAL_RANK") == "1"]
            second.kill()
        printed = ended(p, family)
    if end == "Ctrl-C" and not start:
        assert p.returncode == 130
        assert printed.count("interrupted") == 1 and "Traceback" not in printed
    assert p.returncode


def test_a_mistake_that_several_processes_notice_is_said_once():
    printed = run("08_fsdp/train.py", *TINY, "--devices", 2, "--data", "nowhere", code=2)
    assert printed.count("train.py: --data nowhere") == 1 and "Traceback" not in printed


def test_two_machines(tmp_path):
    """With the words of torchrun in the page's batch file, both on this one."""
    page = (ROOT / "08_fsdp" / "README.md").read_text(encoding="utf-8")
    [words] = re.findall(r"(?s)^srun .*? torchrun (.*?)\n```", page, re.MULTILINE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        words = words.replace("29500", str(free.getsockname()[1])).replace("\\\n", "")
    variables = {"first": "localhost", "SLURM_NNODES": 2, "SLURM_JOB_ID": 4711}
    *options, script = shlex.split(Template(words).substitute(variables))
    its = (script, *TINY, "--max-steps", 3)
    here = (*TORCHRUN[:2], *options, "--local-addr", "localhost", *its, "--record")
    with started(*here, tmp_path / "two.jsonl") as first:
        with started(*here, tmp_path / "two.jsonl") as second:
            assert [p.wait(300) for p in (first, second)] == [0, 0]
    run("tests/forks.py", 4, *its, "--record", tmp_path / "one.jsonl")
    [[two], [four]] = (read(tmp_path / file)[0] for file in ("two.jsonl", "one.jsonl"))
    assert (two["script"], two["world_size"]) == ("08_fsdp/train", 4)
    for key in ("first_loss", "last_loss", "test_accuracy", "load", "train"):
        assert two[key] == four[key], key
