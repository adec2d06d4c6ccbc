"""The lines of a script that read values which no kernel has computed."""

import os
import sys
import threading

import torch

from emulated_gpu.inside.memory import State, on_gpu, state_of

MOST = 20  # lines in a report
PACKAGES = ("site-packages", "dist-packages")
THIS_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
PYTORCH = os.path.join(os.path.dirname(torch.__file__), "")
# Beginnings of file names that are not the program's: of code that has no file, such as "<string>",
# and of Python's own modules.
NOT_THE_PROGRAM = "<", os.path.dirname(os.__file__)

lines = {}  # "file:line" -> what was read there
_lock = threading.Lock()


def read(t, what):
    """Note the line of the script that reads a tensor's values, if they are an assumption.

    `what` names the value in the report: "a number".
    """
    if on_gpu(t) and t.numel() and state_of(t) is not State.COMPUTED:
        with _lock:
            if len(lines) < MOST:
                lines.setdefault(line_at_work(), what)


def line_at_work():
    """Return "file:line" of the innermost call outside of installed packages, "?" if there is none.

    In the backward pass, PyTorch reads in threads of its own, without any lines. Then it is a line
    of another thread, which waits for that one: the main thread if it has one.
    """
    if line := _line_of(sys._getframe(1)):
        return line
    frames = sys._current_frames()
    main = frames.get(threading.main_thread().ident)
    line = next(filter(None, map(_line_of, (main, *frames.values()))), "?")
    frames.clear()  # this function's own frame is among them: a cycle, which would keep tensors
    return line


def place_at_work():
    """Return the innermost call outside of PyTorch and this package, None if there is none.

    It is finer than a line, which may ask twice.
    """
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith((THIS_PACKAGE, PYTORCH)):
        frame = frame.f_back
    return frame and (frame.f_code, frame.f_lasti)


def _line_of(frame):
    """Return the innermost line of a thread outside of installed packages, None if there is none.

    Where all calls are in packages, as of a console script, it is the innermost one outside of
    PyTorch.
    """
    in_package = None
    while frame:
        file = frame.f_code.co_filename
        name = os.path.relpath(file) if file.startswith(os.getcwd()) else file
        where = f"{name}:{frame.f_lineno}"
        if file.startswith(THIS_PACKAGE):
            pass  # wherever it is installed
        elif any(part in file for part in PACKAGES):
            if f"{os.sep}torch{os.sep}" not in file:
                in_package = in_package or where
        elif not file.startswith(NOT_THE_PROGRAM):
            return where
        frame = frame.f_back
    return in_package
