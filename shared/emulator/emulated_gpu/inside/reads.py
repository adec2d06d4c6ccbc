"""The lines of a script that read values which nothing has computed."""

import os
import sys
import threading

from emulated_gpu.inside.memory import COMPUTED, on_gpu, state_of

MOST = 20  # lines in a report
PACKAGES = ("site-packages", "dist-packages")
NOT_THE_SCRIPTS = ["<", os.path.dirname(os.__file__), os.path.dirname(__file__)]

lines = {}  # "file:line" -> what was read there
_lock = threading.Lock()


def read(t, how):
    """Note the line of the script that reads a tensor's values, if they are an assumption."""
    if on_gpu(t) and t.numel() and state_of(t) != COMPUTED:
        with _lock:
            if len(lines) < MOST:
                lines.setdefault(line_at_work(), how)


def line_at_work():
    """Return "file:line" of the innermost call outside of Python's packages."""
    frame, in_package = sys._getframe(1), None
    while frame:
        file = frame.f_code.co_filename
        name = os.path.relpath(file) if file.startswith(os.getcwd()) else file
        where = f"{name}:{frame.f_lineno}"
        if any(part in file for part in PACKAGES):
            if f"{os.sep}torch{os.sep}" not in file:
                in_package = in_package or where
        elif not file.startswith(tuple(NOT_THE_SCRIPTS)):
            return where
        frame = frame.f_back
    return in_package or "?"
