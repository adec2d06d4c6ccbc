"""Shared by the tests: scripts as modules, commands run as by a user, four processes."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from lightning.fabric import Fabric
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
# Before pytest imports them, so that a failed assertion in a helper shows its values.
pytest.register_assert_rewrite("helpers")

from helpers.forks import become  # noqa: E402
from helpers.left_behind import pytest_configure, pytest_sessionfinish  # noqa: E402, F401

from shared.lab.records import scripts  # noqa: E402
from shared.lab.records.running import (  # noqa: E402
    end,
    forks,
)

NAMES = scripts.ladder()
TEXT = [name for name in scripts.stages() if name not in NAMES]  # 11_llm/before, 11_llm/train
SHARDED = [name for name in NAMES if scripts.get(name).load().DEVICES > 1]
SINGLE = [name for name in NAMES if name not in SHARDED]
PLAIN = scripts.plain()
ROADS = scripts.side_roads()
SHARDED_ROADS = [name for name in ROADS if scripts.get(name).load().DEVICES > 1]
LONGEST = ("test_records_of_today", "test_calibrate", "test_own_script", "test_stages")
OF_TORCHRUN = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")


def pytest_xdist_auto_num_workers(config):
    """Return the number of workers: two, but none for a single file.

    A file is not divided, since its tests share what they run. A worker for it would only add the
    seconds in which it imports PyTorch.
    """
    files = {argument.partition("::")[0] for argument in config.args}
    single = len(files) == 1 and Path(*files).is_file()
    return 0 if single else 2


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that no worker has one of them left at the end."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


def run(*command, code=0, cwd=ROOT, limit=400, **env):
    """Run a Python command without a GPU, and return its output.

    It must end with exit code `code` within `limit` seconds. It runs in a fork that has imported
    PyTorch, which saves seconds; with Python's own options, torchrun or other variables, it starts
    as a user starts it.
    """
    words = [str(word) for word in command]
    as_user = env or words[0] in ("-c", "-W") or "torch.distributed.run" in words
    ended, printed = (_started if as_user else _forked)(words, cwd, cpu_only(**env), limit)
    assert ended == code, printed[-3000:]
    return printed


def _started(words, cwd, env, limit):
    command = [sys.executable, *words]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True, **output)
    try:
        printed, errors = process.communicate(timeout=limit)
    finally:  # with all that it has started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, printed + errors


def _forked(words, cwd, env, limit):
    with tempfile.NamedTemporaryFile("r", errors="replace") as out:
        arguments = (words, str(cwd), out.name, env)
        process = forks().Process(target=become, args=arguments)
        process.start()
        try:
            process.join(limit)
            code = process.exitcode  # None: it has not ended
        finally:
            end(process)
        return code, out.read()


def cpu_only(**env):
    """Return an environment in which the tests behave the same on every machine."""
    clean = {k: v for k, v in os.environ.items() if k not in OF_TORCHRUN}
    # One thread each: several processes with as many threads as cores would mostly wait.
    alike = {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": f"{ROOT}:{ROOT}/shared/emulator:{ROOT}/tests",
        "OMP_NUM_THREADS": "1",
    }
    return {**clean, **alike, "TORCH_HOME": os.environ["TORCH_HOME"], **env}


@pytest.fixture(scope="session", autouse=True)
def tiny_cpu(tmp_path_factory):
    """Hide GPUs, and leave the user's cache alone.

    Tests that need a GPU start processes of their own.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("TORCH_HOME", str(tmp_path_factory.mktemp("torch_home")))
    patch.setattr(torch.cuda, "is_available", lambda: False)
    torch.set_num_threads(1)
    yield
    patch.undo()


def paint(folder, n, color):
    """Make n pictures of one color in a new folder."""
    folder.mkdir(parents=True)
    for i in range(n):
        Image.new("RGB", (40 + i, 30), color).save(folder / f"{i}.png")


def code_blocks(page, language="bash"):
    """Return the commands in a page's code blocks, one per line."""
    blocks = re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def page_commands():
    """Return the commands on all pages."""
    pages = [*ROOT.glob("README.md"), *ROOT.glob("[01s]*/**/README.md")]  # stages, and shared/
    return [command for page in pages for command in code_blocks(page)]


def arguments(command):
    """Return a command's arguments for Python, without the setup before it."""
    words = shlex.split(command.split("&&")[-1])
    assert words[0] in ("python", ".venv/bin/python"), command
    return words[1:]


def read_json(file):
    return json.loads(Path(file).read_text())


def in_fp32(name):
    """Return a script as a module that computes in fp32, where results can be compared exactly."""
    script = scripts.get(name)
    module = script.load()
    if hasattr(module, "Fabric"):
        module.Fabric = lambda **options: Fabric(**{**options, "precision": "32-true"})
        return module
    text = script.path.read_text().replace("bf16-true", "32-true").replace("bfloat16", "float32")
    exec(compile(text.replace(".float32()", ".float()"), script.path, "exec"), vars(module))
    return module


def tokens_of(pad_token_id):
    """Return a padded batch of three texts of unequal length, as inputs of a model."""
    input_ids = torch.full((3, 16), pad_token_id)
    for i, length in enumerate((16, 5, 9)):
        input_ids[i, :length] = torch.arange(10 * i + 6, 10 * i + 6 + length)
    return {"input_ids": input_ids, "attention_mask": (input_ids != pad_token_id).long()}
