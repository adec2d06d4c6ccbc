"""The source of a script: the files of its folder, and the line that is running."""

import os
import sys
import threading
from pathlib import Path

PYTHON = os.path.dirname(os.__file__)  # whose own modules may be below that folder, too
# A virtual environment often lies in the script's folder, and compiled code may, too.
NOT_THE_SCRIPT = "site-packages", "dist-packages", "torchinductor_"
OURS = str(Path(__file__).parents[1]) + os.sep  # this package, whose frames are never the script's


class Source:
    """The file of a script, and the modules beside it, or below the current folder with it."""

    def __init__(self, file):
        self.file = file
        here = Path.cwd()
        self.folder = f"{here if file.is_relative_to(here) else file.parent}{os.sep}"

    def line(self, frame=None):
        """Return (file, number, None) of the running line of the script, None outside of it.

        `frame` is the innermost frame of a thread, by default of this one; if it has no line, such
        as autograd's thread in a backward pass, of the main thread, which waits for it.

        The third element is the line that chose the running code, in scripts of this repository:
        see Watch.
        """
        if line := self._line_of(frame or sys._getframe(1)):
            return line
        return self._line_of(sys._current_frames()[threading.main_thread().ident])

    def _line_of(self, frame):
        while frame:
            if self.contains(frame.f_code.co_filename):
                return Path(frame.f_code.co_filename).name, frame.f_lineno, None
            frame = frame.f_back
        return None

    def contains(self, name):
        """Return whether a file is in the script's folder, but not ours, and not installed."""
        if not name.startswith(self.folder) or name.startswith((OURS, PYTHON)):
            return False
        return not any(part in name[len(self.folder) :] for part in NOT_THE_SCRIPT)
