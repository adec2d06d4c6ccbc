"""The source of a script: the files of its folder, and the line that is running."""

import os
import sys
import threading
from pathlib import Path

from shared.lab import EMULATOR

REPOSITORY = str(EMULATOR.parent) + os.sep  # its frames are ours, even beside a script


class Source:
    """The file of a script, the modules in its folder, and notes on their lines.

    `notes` is {text: "FILE:LINE"}, in the order in which they were made.
    """

    def __init__(self, file):
        self.file = file
        self.folder = f"{file.parent}{os.sep}"
        self.notes = {}

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
        if not name.startswith(self.folder) or name.startswith(REPOSITORY):
            return False
        # A virtual environment often lies in the script's folder.
        return "site-packages" not in name[len(self.folder) :]

    def note(self, text):
        """Print a note on the running line, once."""
        if text in self.notes:
            return
        line = self.line()
        where = f"{line[0]}:{line[1]}" if line else self.file.name
        self.notes[text] = where
        print(f"- {where} {text}", file=sys.stderr, flush=True)
