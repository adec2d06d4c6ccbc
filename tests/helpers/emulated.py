"""Programs on emulated GPUs, for tests; without them, NEEDS skips a test with the reason."""

import os
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, cpu_only, run

from emulated_gpu import build, launch
from emulated_gpu.cards import DEFAULT


def lacking():
    """Return a line on what this machine lacks to emulate GPUs, or an empty text."""
    try:
        build.library()
    except build.BuildError as error:
        if "/c/" in str(error):  # of the emulator's own files: it is broken, nothing is lacking
            raise
        return str(error)
    return ""


NEEDS = pytest.mark.skipif(bool(lacking()), reason=lacking())


def emulate(code, folder, *options, words=(), limit=200, **env):
    """Run a script as `python -m emulated_gpu` does; return its output, with the report."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code).lstrip())
    return run("-m", "emulated_gpu", *options, script, *words, limit=limit, EMULATE="", **env)


def run_code(code, *words):
    """Run Python code in the environment of an emulated GPU, without the library preloaded."""
    env = cpu_only(**launch.settings(DEFAULT))
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    assert not done.returncode, done.stderr
    return done.stdout


def devices(n):
    """Return the environment variables of a process with n emulated GPUs that this one lacks."""
    env = launch.environment(DEFAULT, n)
    return {name: text for name, text in env.items() if text != os.environ.get(name)}
