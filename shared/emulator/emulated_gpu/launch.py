"""Starts programs with emulated GPUs: the environment that makes them find some, and reports."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from emulated_gpu import build
from emulated_gpu.cards import CONTEXT_GB, DEFAULT

# Microseconds that a host takes to start a kernel from Python, by updates that were published in
# 2023 and that it sets the pace of: see evidence/published, `clock`.
LAUNCH = 41.5
MOST = 64  # GPUs that a process sees; DEVICES in emulator.h
STARTUP = Path(__file__).with_name("startup")


def is_emulated():
    """Return whether the GPUs that this process sees are emulated."""
    return "EMULATED_DEVICES" in os.environ


def environment(card=DEFAULT, devices=1, *, clock=0, alone=False):
    """Return the environment variables for a program with emulated GPUs; see settings().

    Raises:
        build.BuildError: this machine lacks something.
    """
    library = build.library()

    def before(name, first, separator=os.pathsep):
        return separator.join(filter(None, [str(first), os.environ.get(name)]))

    variables = {
        **os.environ,
        "LD_PRELOAD": before("LD_PRELOAD", library, " "),
        "PYTHONPATH": before("PYTHONPATH", STARTUP),
        "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH", library.parent),  # programs load NVML by name
        "TRITON_LIBCUDA_PATH": str(library.parent),
        "TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT": "1",  # seconds, for threads that wait forever then
        **settings(card, devices, clock=clock, alone=alone),
    }
    variables.pop("CUDA_VISIBLE_DEVICES", None)  # it names real GPUs
    return variables


def without_gpus():
    """Return the environment variables for a program that sees no GPU, of any kind."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("EMULATED_")}
    return {**kept, "CUDA_VISIBLE_DEVICES": ""}


def settings(card=DEFAULT, devices=1, *, clock=0, alone=False, rank=0):
    """Return the variables that say which GPUs are emulated, and how.

    Args:
        card: emulator.cards.Card.
        devices: their number; with alone=True that of the ranks, of which the program is `rank`.
        clock: microseconds that the host takes to start a piece of work, which then lasts as long
            as on the card; 0: all work is done at once.
    """
    variables = {
        "EMULATED_FOLDER": "-emulated",  # ends the name of a folder that nothing else should read
        "EMULATED_NAME": card.name,
        "EMULATED_BYTES": str(int(card.gib * 2**30)),
        "EMULATED_CONTEXT": str(int(CONTEXT_GB * 1e9)),
        "EMULATED_CAPABILITY": str(10 * card.capability[0] + card.capability[1]),
        "EMULATED_MULTIPROCESSORS": str(card.multiprocessors),
        "EMULATED_THREADS": str(card.threads),
        "EMULATED_CACHE": str(int(card.rates.cache * 2**20)),
        "EMULATED_DEVICES": str(1 if devices > MOST else devices),
        "EMULATED_LAUNCH": str(round(clock * 1e3)),
        "EMULATED_ALONE": str(int(alone)),
    }
    if rates := card.rates:
        flops = (1e3 * (rate or 0) for rate in (rates.fp32, rates.tf32, rates.half))
        per_ns = (*flops, rates.memory, rates.host, rates.gpus or rates.host)
        variables["EMULATED_RATES"] = " ".join(map(str, per_ns))
    if alone:  # as torchrun would set it
        ranks = {"WORLD_SIZE": devices, "LOCAL_WORLD_SIZE": devices, "RANK": rank, "LOCAL_RANK": 0}
        ranks |= {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
        ranks |= {"TORCHELASTIC_RUN_ID": "alone"}
        ranks |= {"TORCH_NCCL_RANKS_PER_ROOT": devices}  # else each 128th rank has to answer
        variables |= {name: str(value) for name, value in ranks.items()}
    return variables


def become(variables):
    """Give this process, a fork that has not used its emulated GPU yet, another: see settings()."""
    os.environ.update(variables)
    ctypes.CDLL(None).emulator_start()
    if os.environ["EMULATED_ALONE"] == "1":
        from emulated_gpu.inside import alone  # it is there where a GPU is emulated

        alone.begin()


def run(command, variables, snapshot=None, **output):
    """Run a program; return its exit code (negative: a signal) and the reports of its processes.

    `output` is for subprocess.Popen: where it prints.
    They are {"rank", "peaks": {device: bytes by kind}, "lines", "called"}, in the order of ranks.
    Ctrl-C reaches the program, too. Nothing that it has started is left.
    """
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        variables = {**variables, "EMULATED_REPORTS": folder}
        if snapshot:
            variables["EMULATED_SNAPSHOT"] = str(Path(snapshot).resolve())
        process = start(command, variables, **output)
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            code = process.wait()
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait()
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            signal.signal(signal.SIGTERM, before)
        reports = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    return code, sorted(reports, key=lambda report: report["rank"])


def start(command, variables, **options):
    """Start a program in a session of its own, as a subprocess.Popen; it ends with this thread.

    `options` are for subprocess.Popen.
    """
    how = {"start_new_session": True, "preexec_fn": _end_with_parent}
    return subprocess.Popen(command, env=variables, **how, **options)


def _end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def python(script, options=()):
    """Return the command that runs a script with this Python."""
    return [sys.executable, str(script), *map(str, options)]
