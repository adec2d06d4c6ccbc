"""Start programs with emulated GPUs: the environment variables for them, and their reports.

This is the interface for programs outside; process.py is the interface inside of a process with
an emulated GPU.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from emulated_gpu import build
from emulated_gpu.cards import CONTEXT_GB, DEFAULT

# Microseconds that a host takes to start a kernel from Python: 24 to 62 beside an H200, more where
# it also computes or copies; and 41.5 in published times of updates of 2023 that were as long as
# the host took to launch them.
HOST_US = 40
BOUNDS_US = 5, 60  # a fast host, which starts kernels from C++ or in graphs, and a slow one
MOST = 64  # GPUs that a process sees; DEVICES in emulator.h
STARTUP = Path(__file__).with_name("startup")
UNCOUNTED = (
    "a process used the GPU without being counted; start Python without -I, -E and -S, and leave "
    "PYTHONPATH in the environment of child processes, or add to it"
)


class EmulatorError(RuntimeError):
    """A run without figures: a process was not counted, or an operation of the emulator failed."""

    def __init__(self, text, code, reports):
        """Keep what run() would have returned: the exit code, and reports of other processes."""
        super().__init__(text)
        self.code, self.reports = code, reports


def is_emulated():
    """Return whether the GPUs that this process sees are emulated."""
    return "EMULATED_DEVICES" in os.environ


def environment(card=DEFAULT, devices=1, **options):
    """Return all environment variables for a program with emulated GPUs.

    Args:
        card, devices, options: as of settings().

    Raises:
        build.BuildError: this machine lacks something.
    """
    library = build.library()
    variables = {
        **os.environ,
        # Before NVIDIA's libraries, whose functions have the same names:
        # https://man7.org/linux/man-pages/man8/ld.so.8.html
        "LD_PRELOAD": before("LD_PRELOAD", library, " "),
        "PYTHONPATH": before("PYTHONPATH", STARTUP),
        "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH", library.parent),  # programs load NVML by name
        # Triton links with the library in this folder; otherwise it would ask ldconfig.
        "TRITON_LIBCUDA_PATH": str(library.parent),
        # Seconds at the end. Threads of autograd that want Python's lock then wait forever: host.c.
        "TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT": "1",
        **settings(card, devices, **options),
    }
    variables.pop("CUDA_VISIBLE_DEVICES", None)  # it names real GPUs
    return variables


def before(name, first, separator=os.pathsep):
    """Return the text of an environment variable, a list, with another entry at its beginning."""
    return separator.join(filter(None, [str(first), os.environ.get(name)]))


def without_gpus():
    """Return the environment variables for a program that sees no GPU, real or emulated."""
    # is_emulated() and startup/sitecustomize.py read these.
    kept = {name: text for name, text in os.environ.items() if not name.startswith("EMULATED_")}
    return {**kept, "CUDA_VISIBLE_DEVICES": ""}


def settings(
    card=DEFAULT,
    devices=1,
    *,
    host_us=HOST_US,
    alone=False,
    rank=0,
    memory_gb=None,
    context_gb=CONTEXT_GB,
):
    """Return the environment variables that say which GPUs are emulated, and how.

    Args:
        card: cards.Card.
        devices: number of GPUs; with alone=True number of ranks, of which the program is `rank`.
        host_us: microseconds that the host takes to start a piece of work, which then lasts as
            long as on the card.
        memory_gb: the memory of each GPU in GB (1e9 bytes); None: what the card has.
        context_gb: GB of it that PyTorch's allocator does not get.
    """
    rates = card.rates
    flops = (1e3 * (rate or 0) for rate in (rates.fp32, rates.tf32, rates.half))
    per_ns = (*flops, rates.memory, rates.host, rates.gpus or rates.host, card.cycles)
    memory = int(card.gib * 2**30) if memory_gb is None else int(memory_gb * 1e9)
    variables = {
        "EMULATED_FOLDER": "-emulated",  # ends the name of a folder that nothing else should read
        "EMULATED_NAME": card.name,
        "EMULATED_BYTES": str(memory),
        "EMULATED_CONTEXT": str(int(context_gb * 1e9)),
        "EMULATED_CAPABILITY": str(10 * card.capability[0] + card.capability[1]),
        "EMULATED_MULTIPROCESSORS": str(card.multiprocessors),
        "EMULATED_THREADS": str(card.threads),
        "EMULATED_CACHE": str(int(rates.cache * 2**20)),
        "EMULATED_RATES": " ".join(map(str, per_ns)),
        # More are allowed only with alone=True, where a process uses one.
        "EMULATED_DEVICES": str(1 if devices > MOST else devices),
        "EMULATED_LAUNCH": str(round(host_us * 1e3)),
        "EMULATED_ALONE": str(int(alone)),
    }
    return variables | _variables_of_torchrun(devices, rank) if alone else variables


def _variables_of_torchrun(ranks, rank):
    """Return the environment that torchrun would give one rank of several on a machine."""
    variables = {
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "RANK": rank,
        "LOCAL_RANK": 0,  # the only GPU here
        "GROUP_RANK": 0,
        # For scripts that read them; nothing listens at this address.
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 29500,
        "TORCHELASTIC_RUN_ID": "alone",
        # PyTorch starts large groups in parts of 128 ranks, each with a root that has to answer.
        "TORCH_NCCL_RANKS_PER_ROOT": ranks,
    }
    return {name: str(value) for name, value in variables.items()}


def run(command, variables, snapshot=None, trace=None, **output):
    """Run a program with emulated GPUs until it ends; then kill all processes that it has left.

    Ctrl-C reaches the program, too.

    Args:
        command: the program's words, as for subprocess.Popen.
        variables: of environment().
        snapshot: a file for the allocator's history, as torch.cuda.memory._dump_snapshot() writes
            it; of other ranks than 0 it ends in ".rank1" and so on.
        trace: a file for the work that the GPU is given, for Perfetto; named likewise.
        output: where it prints, for subprocess.Popen.

    Returns:
        (exit code, negative for a signal; reports of its processes that used a GPU, by rank). A
        report is {"rank": number, "peaks": {device: {"allocated", "active", "reserved": bytes}},
        "lines": {"file:line" that read a value that no kernel computed: its kind}, "called": names
        of functions whose results are assumptions, "kept": what recorded other streams on tensors,
        "file:line" or in words, so that memory depends on the host's pace, "groups": communicators
        of NCCL at once, "retries": how often PyTorch gave its cache back to make room, "errors":
        allocations that failed, "stand_ins": {note on what stood in for something missing: the
        "file:line" that asked for it}}.

    Raises:
        EmulatorError: a process used a GPU, and its memory was not counted, or an operation failed
            by a mistake of the emulator, also if the program went on.
    """
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        variables = {**variables, "EMULATED_REPORTS": folder, "EMULATED_STAND_INS": "1"}
        if snapshot:
            variables["EMULATED_SNAPSHOT"] = str(Path(snapshot).resolve())
        if trace:
            variables["EMULATED_TRACE"] = str(Path(trace).resolve())
        process = start(command, variables, **output)
        # Without a handler, SIGTERM would end this process before it ends the program. Only the
        # main thread can have one.
        in_main = threading.current_thread() is threading.main_thread()
        if in_main:
            before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The terminal's Ctrl-C does not reach another session.
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait()
        finally:
            # Processes that the program has left behind; they would keep the cores busy.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if in_main:
                signal.signal(signal.SIGTERM, before)
        reports = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
        uncounted = {file.stem for file in Path(folder).glob("*.uncounted")}
        if uncounted - {file.stem for file in Path(folder).glob("*.json")}:
            raise EmulatorError(UNCOUNTED, code, reports)
        if failed := [*Path(folder).glob("*.failed")]:
            raise EmulatorError(failed[0].read_text(), code, reports)
    return code, sorted(reports, key=lambda report: report["rank"])


def start(command, variables, **options):
    """Start a program in a session of its own, as a subprocess.Popen; it ends with this thread.

    `options` are for subprocess.Popen.
    """
    # A session of its own, since run() and its callers end all processes of a session together.
    apart = {"start_new_session": True, "preexec_fn": _end_with_parent}
    return subprocess.Popen(command, env=variables, **apart, **options)


def _end_with_parent():
    # For a parent that is killed, which cannot end its programs as run() does.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
