"""A plugin for pytest: a test with a budget of GPU memory, which needs no GPU.

    @pytest.mark.gpu_memory(max_gb=12, card="l4")
    def test_training_fits():
        train(batch_size=8)

Such a test runs on an emulated GPU, in a process of its own with its fixtures, and fails if a card
would need more: what PyTorch reserves, and what CUDA takes. A failure of the test itself is shown
as usual.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from emulated_gpu import cards, launch, programs
from emulated_gpu.build import BuildError
from emulated_gpu.launch import EmulatorError
from emulated_gpu.texts import amount

MARKER = "gpu_memory(max_gb, card='a100'): run on an emulated GPU, with at most so many GB of it"
SHOWN = 5  # lines that hold memory at the peak


def pytest_configure(config):
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Run a test with the marker in another process, and return True; else return None."""
    marker = item.get_closest_marker("gpu_memory")
    # In the other process, the test runs as usual.
    if not marker or launch.is_emulated():
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    began = time.time()
    outcome, text = _outcome(item, *marker.args, **marker.kwargs)
    for when in ("setup", "call", "teardown"):
        is_call = when == "call"
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={name: 1 for name in item.keywords},
            outcome=outcome if is_call else "passed",
            longrepr=text if is_call else None,
            when=when,
            duration=time.time() - began if is_call else 0,
        )
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _outcome(item, max_gb=None, card="a100", *others, **unknown):
    """Return the outcome of a test, and the text that pytest prints, or None."""
    if others or unknown:  # an error here would end all tests
        wrong = ", ".join((*map(repr, others), *unknown))
        return "failed", f"gpu_memory has max_gb and card, not {wrong}"
    if card not in cards.CARDS:
        return "failed", f"gpu_memory: {card} is no card; `emulated-gpu cards` lists them"
    if not isinstance(max_gb, (int, float)) or max_gb <= 0:
        return "failed", f"gpu_memory(max_gb={max_gb!r}): name a number of GB"
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        results = Path(folder, "results.xml")
        try:
            run, printed = _run(_command(item, results), card, item.config)
        except (BuildError, EmulatorError) as error:
            return "failed", f"emulated-gpu: {error}"
        if not results.exists():
            return "failed", f"the test's process ended with exit code {run.code}\n{printed}"
        case = ElementTree.parse(results).find(".//testcase")
    for found in case if case is not None else ():
        if found.tag in ("failure", "error"):
            return "failed", found.text or found.get("message")
        if found.tag == "skipped":
            path, line, _ = item.location
            return "skipped", (path, line, f"Skipped: {found.get('message')}")
    if not run.peaks:
        return "failed", "gpu_memory: nothing was allocated on a GPU"
    if run.needs_gb > max_gb:
        return "failed", _too_much(run, max_gb, cards.CARDS[card].title)
    return "passed", None


def _command(item, results):
    """Return the words that run one test by another pytest, which writes its results to a file."""
    config = item.config
    # Its path, because the other process may have another root.
    test = f"{item.path}::{item.nodeid.partition('::')[2]}"
    words = [sys.executable, "-m", "pytest", test, f"--junitxml={results}"]
    words += ["-q", "-p", "no:cacheprovider", "-p", "no:terminalreporter", "-o", "addopts="]
    words += [f"--rootdir={config.rootpath}"]
    return words + ([f"-c={config.inipath}"] if config.inipath else [])


def _run(command, card, config):
    """Return the Run of a command, and the text that it has printed."""
    # Without this pytest's own options, and without the name of its running test.
    env = {name: "" for name in os.environ if name.startswith("PYTEST_")}
    with tempfile.TemporaryFile("w+") as printed:
        output = {"stdout": printed, "stderr": subprocess.STDOUT}
        output["cwd"] = config.invocation_params.dir
        run = programs.run(command, card, history=True, env=env, **output)
        printed.seek(0)
        return run, printed.read()


def _too_much(run, max_gb, title):
    """Return a text: the memory beyond the budget of a test, and the lines that hold it."""
    reserved = max(p.reserved for p in run.peaks)
    outside = cards.set_aside(run.devices) * 1e9
    lines = [
        f"gpu_memory, {title}: {run.needs_gb:.2f} GB are needed, {run.needs_gb - max_gb:.2f} more "
        f"than max_gb={max_gb:g}",
        f"PyTorch reserves {amount(reserved)}, CUDA takes {amount(outside)}",
    ]
    if run.at_peak:
        lines.append(f"the peak: {run.at_peak.line}; then these lines hold")
        held = [*run.at_peak.held.items()][:SHOWN]
        lines += [f"  {amount(nbytes)}  {line}" for line, nbytes in held]
    return "\n".join(lines)
