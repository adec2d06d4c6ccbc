"""A search for the scripts that fit on a card, and for how many images or texts at once.

A run goes on with updates of other sizes, which show what the card's memory has room for. If a
script does not fit, it runs once more on a card of exactly that size: PyTorch then frees idle
blocks of its cache, and the memory may suffice.
"""

import dataclasses

import torch

from shared.lab.predict.jobs import Failed, attempts
from shared.lab.predict.sizes import with_fits
from shared.lab.predict.stage import predicted, with_most


def runs_on(script, options, card_gb):
    """Return whether a script runs on a card with so many GB, where idle memory is given back."""
    try:
        # The rank that needs most is found while there is room; only then is the card small.
        options = with_most(script, options)
        predicted(script, dataclasses.replace(options, card_gb=card_gb))
    except torch.OutOfMemoryError:
        return False
    return True


class Runs:
    """Runs of jobs, some of which may fail: the results of the successful ones are kept.

    `errors` are those of failed runs; once all is done, `failed` is a Failed, or None.
    """

    def __init__(self):
        self.errors = []

    def results(self, jobs):
        """Return the results of jobs, with None for each that failed."""
        every = attempts(jobs) if jobs else ()
        self.errors += (each for each in every if isinstance(each, Exception))
        return [None if isinstance(each, Exception) else each for each in every]

    @property
    def failed(self):
        """A Failed with the errors so far, None without errors."""
        return Failed(self.errors) if self.errors else None


def fits(jobs, card_gb):
    """Return the records of jobs, (script, Wanted), each with "fits" for a card, and a Failed.

    The Failed is None if no job failed.

    Raises:
        Failed: all of them failed.
    """
    runs = Runs()
    records = runs.results([(with_fits, *job, card_gb) for job in jobs])
    done = [(r, job) for r, job in zip(records, jobs) if r]
    if not done:
        raise runs.failed
    # On the card itself, PyTorch gives idle memory back before it fails.
    doubtful = [(r, job) for r, job in done if not r["fits"]["fits"]]
    answers = runs.results([(runs_on, *job, card_gb) for _, job in doubtful])
    for (record, _), answer in zip(doubtful, answers):
        record["fits"]["fits"] = bool(answer)
    return [r for r, _ in done], runs.failed
