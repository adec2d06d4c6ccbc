"""Programs on emulated GPUs, for tests; where that cannot be, the tests that need them say why."""

import os
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, cpu_only, run

from emulated_gpu import build, launch
from emulated_gpu.cards import DEFAULT


def lacking():
    """Return what this machine lacks, in one line, or an empty text."""
    try:
        build.library()
    except build.BuildError as error:
        return str(error)
    return ""


NEEDS = pytest.mark.skipif(bool(lacking()), reason=lacking())


def emulate(code, folder, *options, words=(), limit=200, **env):
    """Run a script as `python -m emulated_gpu` does; return what it prints, and the report."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code).lstrip())
    return run("-m", "emulated_gpu", *options, script, *words, limit=limit, EMULATE="", **env)


def run_code(code, *words, clock=0):
    """Run Python code in the environment of an emulated GPU, without the library preloaded."""
    variables = launch.environment(DEFAULT, clock=clock)
    kept = {k: v for k, v in variables.items() if k.startswith("EMULATED_")}
    command = [sys.executable, "-c", code, *words]
    env = {**cpu_only(), **kept}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    assert not done.returncode, done.stderr
    return done.stdout


def devices(n):
    """Return the environment of a process with n emulated GPUs."""
    env = launch.environment(DEFAULT, n)
    return {k: env[k] for k in env if env[k] != os.environ.get(k)}
