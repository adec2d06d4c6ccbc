"""The two segments of a script: loading, and training."""

from emulated_gpu import process


class Segments:
    """The beginning of training, and the peaks before and after it.

    Attributes:
        loaded: the number of operations when training began, None before.
        load_peaks: the peaks of PyTorch's counters until then, in bytes.
    """

    def __init__(self, watch):
        self.loaded = None
        self.load_peaks = dict.fromkeys(process.PEAKS, 0)
        self._watch = watch

    def begin_training(self):
        """End the loading phase, and begin training."""
        self._watch.building = False
        self.loaded = len(self._watch.places)
        self.load_peaks = process.restart_peaks()

    def end(self):
        """Return the peaks of training, in bytes; of the whole script if it has not trained."""
        return process.restart_peaks()
