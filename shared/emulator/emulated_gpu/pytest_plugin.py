"""A plugin for pytest: a test with a budget of GPU memory, which needs no GPU.

    @pytest.mark.gpu_memory(max_gb=12, card="l4")
    def test_training_fits():
        train(batch_size=8)

Such a test runs on an emulated GPU, in a process of its own with its fixtures, and fails if a card
would need more: what PyTorch reserves, and what CUDA takes. All else is as of any other test.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from emulated_gpu import build, cards, launch, programs
from emulated_gpu.texts import amount

MARKER = "gpu_memory(max_gb, card='a100'): run on an emulated GPU, with at most so many GB of it"
SHOWN = 5  # lines that hold memory at the peak
REPORTS = "EMULATED_TEST_REPORTS"  # names the file for the reports of the other process
OURS = Path(__file__).parent


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
    for report in _reports(item, *marker.args, **marker.kwargs):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """In the other process, hand a report over, without this package's part of a traceback."""
    entry = call.excinfo.tb if call.excinfo and REPORTS in os.environ else None
    while entry:
        while (after := entry.tb_next) and OURS in Path(after.tb_frame.f_code.co_filename).parents:
            entry.tb_next = after.tb_next
        entry = entry.tb_next
    report = (yield).get_result()
    if REPORTS in os.environ:
        data = item.ihook.pytest_report_to_serializable(config=item.config, report=report)
        with open(os.environ[REPORTS], "a") as file:
            print(json.dumps(data, default=str), file=file)


def _reports(item, max_gb=None, card="a100", *others, **unknown):
    """Return the reports of a test in another process, with the memory that it needs."""
    if others or unknown:  # an error here would end all tests
        wrong = ", ".join((*map(repr, others), *unknown))
        return _failed(item, f"gpu_memory has max_gb and card, not {wrong}")
    if card not in cards.CARDS:
        return _failed(item, f"gpu_memory: {card} is no card; `emulated-gpu cards` lists them")
    if not isinstance(max_gb, (int, float)) or max_gb <= 0:
        return _failed(item, f"gpu_memory(max_gb={max_gb!r}): name a number of GB")
    try:
        run, printed, reports = _run(item, card)
    except (build.BuildError, launch.EmulatorError) as error:
        return _failed(item, f"emulated-gpu: {error}")
    if not reports or reports[-1].when != "teardown":
        return _failed(item, f"the test's process ended with exit code {run.code}\n{printed}")
    report = next(r for r in reports if r.when == "call" or not r.passed)
    if isinstance(report.longrepr, list):  # which JSON makes of a tuple, the reason of a skip
        report.longrepr = tuple(report.longrepr)
    text = _memory(run, max_gb, cards.CARDS[card].title)
    # A test that is expected to fail may need too much, too.
    _, strict, reason = str(report.longrepr).partition("[XPASS(strict)] ")
    if (report.passed or strict) and (not run.peaks or run.needs_gb > max_gb):
        if strict:
            report.wasxfail = reason
        report.outcome = "skipped" if hasattr(report, "wasxfail") else "failed"
        report.longrepr = text
    elif run.peaks:
        report.sections.append(("gpu_memory", text))
    for each in reports:
        each.nodeid, each.location = item.nodeid, item.location
        each.user_properties.append(("gpu_memory_gb", round(run.needs_gb, 3)))
    return reports


def _failed(item, text):
    """Return the reports of a test that has not run."""
    keywords = {name: 1 for name in item.keywords}
    phases = ("passed", None, "setup"), ("failed", text, "call"), ("passed", None, "teardown")
    return [pytest.TestReport(item.nodeid, item.location, keywords, *phase) for phase in phases]


def _run(item, card):
    """Run one test by another pytest; return its programs.Run, what it printed, its reports."""
    config = item.config
    # Its path, because the other process may have another root.
    test = f"{item.path}::{item.nodeid.partition('::')[2]}"
    words = [sys.executable, "-m", "pytest", test, "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    words += ["-p", config.pluginmanager.get_name(sys.modules[__name__])]
    words += [f"--rootdir={config.rootpath}", *([f"-c={config.inipath}"] if config.inipath else [])]
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        file, printed = Path(folder, "reports"), Path(folder, "printed")
        # Without this pytest's own options, and without the name of its running test.
        env = {name: "" for name in os.environ if name.startswith("PYTEST_")} | {REPORTS: str(file)}
        options = {"history": True, "env": env, "cwd": config.invocation_params.dir}
        with printed.open("w") as out:
            if config.option.capture == "no":
                words += ["-s", "-p", "no:terminalreporter"]
            else:
                options |= {"stdout": out, "stderr": subprocess.STDOUT}
            run = programs.run(words, card, **options)
        lines = file.read_text().splitlines() if file.exists() else ()
        make = config.hook.pytest_report_from_serializable
        reports = [make(config=config, data=json.loads(line)) for line in lines]
        return run, printed.read_text(), reports


def _memory(run, max_gb, title):
    """Return a text: the memory that a test needs; if it is too much, the lines that hold it."""
    if not run.peaks:
        return "gpu_memory: nothing was allocated on a GPU"
    more = run.needs_gb - max_gb
    of = f"{more:.2f} more than max_gb={max_gb:g}" if more > 0 else f"of max_gb={max_gb:g}"
    failed = sum(report["errors"] for report in run.reports)  # an allocation: the rest did not run
    reserved, outside = max(p.reserved for p in run.peaks), cards.set_aside(run.devices) * 1e9
    lines = [
        f"gpu_memory, {title}: {'at least ' * bool(failed)}{run.needs_gb:.2f} GB are needed, {of}",
        f"PyTorch reserves {amount(reserved)}, CUDA takes {amount(outside)}",
    ]
    if run.at_peak and (more > 0 or failed):
        lines.append(f"the peak: {run.at_peak.line}; then these lines hold")
        held = [*run.at_peak.held.items()][:SHOWN]
        lines += [f"  {amount(nbytes)}  {line}" for line, nbytes in held]
    return "\n".join(lines)
