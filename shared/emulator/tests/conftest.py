"""Programs on emulated GPUs, for tests; without them, NEEDS skips a test with the reason."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from emulated_gpu import build

PROJECT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser):
    parser.addoption("--scripts", type=Path, help="folder with the scripts of others")


def pytest_xdist_auto_num_workers(config):
    """Return the number of workers: two, but none for a single file, which is not divided."""
    files = {argument.partition("::")[0] for argument in config.args}
    return 0 if len(files) == 1 and Path(*files).is_file() else 2


NEEDS = pytest.mark.skipif(bool(build.lacking()), reason=build.lacking())


def cpu_only(**env):
    """Return an environment in which the tests behave the same on every machine."""
    # One thread each: several processes with as many threads as cores would mostly wait.
    alike = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **alike, **env}


def run(*command, code=0, cwd=PROJECT, limit=400, **env):
    """Run a Python command without a GPU, and return its output, with errors and reports.

    It must end with exit code `code` within `limit` seconds.
    """
    words = [sys.executable, *map(str, command)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    apart = {"cwd": cwd, "env": cpu_only(**env), "start_new_session": True}
    process = subprocess.Popen(words, **apart, **output)
    try:
        printed = "".join(process.communicate(timeout=limit))
    finally:  # with all that it has started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == code, printed[-3000:]
    return printed


def emulate(code, folder, *options, words=(), limit=200, **env):
    """Run a script as `python -m emulated_gpu` does; return its output, with the report."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code).lstrip())
    return run("-m", "emulated_gpu", *options, script, *words, limit=limit, **env)
