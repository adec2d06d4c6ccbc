"""The end of a script that would continue with updates like those before it."""

PLENTY = 128  # batches that a script may take before it trains with one
FURTHER = 3  # updates after the watched ones, or epochs, after which a script is stopped


class Enough(BaseException):
    """Raised to end a script; not an Exception, which the script itself might catch."""


class Limits:
    """The number of updates of a script to watch, and the limits after which it is stopped.

    `stopped` is the place, such as "update 9", None if the script was not stopped. `wanted` is the
    number of updates after which a loop over batches ends.
    """

    def __init__(self, watched):
        self.watched = self.wanted = watched
        self.stopped = None
        self._epochs = 0  # that were cut short

    def batches(self, is_training, grows=False):
        """Return the number of batches that a loop may take before a backward pass.

        Evaluation gets further ones while its memory `grows`, which show if it goes on.
        """
        # Some scripts fetch all micro-batches of an update before they train with the first.
        return PLENTY if is_training else self.watched + FURTHER * grows

    def stop(self, where):
        """End the script; store the place."""
        self.stopped = where
        raise Enough

    def take_more(self):
        """Want further updates, which show if memory goes on growing."""
        self.wanted = self.watched + FURTHER

    def check_updates(self, updates):
        """Stop a script that goes on after the wanted updates."""
        if updates >= self.wanted + FURTHER:
            self.stop(f"update {updates}")

    def check_backwards(self, backwards):
        """Stop a script that computes gradients, and never updates a weight."""
        if backwards > PLENTY:
            self.stop(f"backward pass {PLENTY}, without an update")

    def end_epoch(self, updates):
        """Count an epoch that was cut short; stop a script after some of them."""
        self._epochs += 1
        if self._epochs > FURTHER:
            self.stop(f"update {updates}")
