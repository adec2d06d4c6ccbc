"""The segments of a script that are watched: all of it, but for the timed updates."""

import contextlib

from emulated_gpu import process


class Segments:
    """Watched segments of a run.

    Attributes:
        loaded: the number of operations when training began, None before.
        load_peaks: the peaks of PyTorch's counters until then, in bytes.
        training: segments of training: (peaks, (number of the first operation, of the last)).
        is_paused: true in the timed updates, around which nothing of ours runs.
    """

    def __init__(self, watch):
        self.loaded = None
        self.load_peaks = dict.fromkeys(process.PEAKS, 0)
        self.training = []
        self.is_paused = False
        self._watch = watch
        self._since = 0
        self._watching = contextlib.ExitStack()

    @contextlib.contextmanager
    def watched(self):
        """Watch in this context, but for what is between pause() and resume()."""
        with self._watching:
            self._watching.enter_context(self._watch.at_work())
            yield

    def begin_training(self):
        """End the loading phase, and begin the first segment of training."""
        self._watch.building = False
        self.loaded = len(self._watch.places)
        self._since = self.loaded
        self.load_peaks = process.restart_peaks()

    def pause(self):
        """Stop watching, and let no tensor have values, for updates that take their own time."""
        self.is_paused = True
        self._watching.close()
        self._end_segment()
        self._watch.place()  # what is allocated from here on belongs to no segment
        process.end_values()

    def resume(self):
        """Watch again, after pause()."""
        if not self.is_paused:
            return
        self.is_paused = False
        process.restart_peaks()
        self._since = len(self._watch.places)
        self._watch.place()
        process.begin_values()
        self._watching.enter_context(self._watch.at_work())

    def end(self):
        """End what counts as training; the timed updates do not."""
        if not self.is_paused:
            self._end_segment()

    def _end_segment(self):
        span = self._since, len(self._watch.places)
        self.training.append((process.restart_peaks(), span))
