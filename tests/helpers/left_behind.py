"""Fail a session of tests that leaves processes behind, and name them.

They inherit a variable of the session's environment, even if the process that started them has
ended.
"""

import contextlib
import os
import time
import uuid

import psutil
import pytest

MARK = "LADDER_TEST_SESSION"
SECONDS = 30  # to end in: a DataLoader worker looks for its parent every five; machines are busy


def pytest_configure(config):
    if _is_controller(config):  # the processes of xdist inherit the mark
        os.environ[MARK] = uuid.uuid4().hex


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session):
    """Report an error after xdist has ended its processes, or after the tests without xdist."""
    result = yield
    if _is_controller(session.config) and (left := left_after(SECONDS)):
        print("\nERROR: processes left behind, and killed now:", *map(_killed, left), sep="\n")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    return result


def left_after(seconds):
    """Return the other processes of this session that do not end within some seconds."""
    deadline = time.monotonic() + seconds
    while (left := [*_others()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _others():
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended, or belongs to another user
            marked = process.environ().get(MARK) == os.environ[MARK]
            ended = process.status() == psutil.STATUS_ZOMBIE
            if marked and not ended and process.pid != os.getpid() and not _helper(process):
                yield process


def _helper(process):
    """Return whether a process is a server that this process forks from, and that ends with it."""
    command = " ".join(process.cmdline())
    kept = any(
        words in command for words in ("from multiprocessing.", "-m shared.lab.predict.forks")
    )
    return kept and process.ppid() == os.getpid()


def _killed(process):
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        process.kill()
        return f"{process.pid} {' '.join(words)}"
    return f"{process.pid}, which has ended meanwhile"


def _is_controller(config):
    return not hasattr(config, "workerinput")
