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


def fits(jobs, card_gb):
    """Return the records of jobs, (script, Wanted), each with "fits" for a card, and a Failed.

    The Failed is None if no job failed.

    Raises:
        Failed: all of them failed.
    """
    results = attempts([(with_fits, *job, card_gb) for job in jobs])
    done = [(r, job) for r, job in zip(results, jobs) if not isinstance(r, Exception)]
    # On the card itself, PyTorch gives idle memory back before it fails.
    doubtful = [(r, job) for r, job in done if not r["fits"]["fits"]]
    answers = attempts([(runs_on, *job, card_gb) for _, job in doubtful])
    for (record, _), answer in zip(doubtful, answers):
        record["fits"]["fits"] = answer is True
    errors = [r for r in (*results, *answers) if isinstance(r, Exception)]
    failed = Failed(errors) if errors else None
    if failed and not done:
        raise failed
    return [r for r, _ in done], failed
