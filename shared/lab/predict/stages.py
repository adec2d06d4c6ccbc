"""Predictions of this repository's scripts, each in a fork of a process with all imports done."""

from shared.lab.predict import card_fit, tables
from shared.lab.predict.jobs import Failed, run_jobs
from shared.lab.predict.outcome import Outcome
from shared.lab.predict.selection import runs
from shared.lab.predict.stage import predict as predict_one
from shared.lab.predict.stage import predict_moments


def predict(args):
    """Predict scripts as options.parse() has returned them; return an Outcome.

    Raises:
        Failed: all of them failed, or one of a search for what fits.
    """
    if args.fits_gb:
        return Outcome(card_fit.fits(runs(args), args.fits_gb), [], tables.fitting)
    if args.ways:
        records = card_fit.find(runs(args), args.card)
        return Outcome(records, [], lambda group: card_fit.table(group, args.card))
    if args.timeline:
        moments, failed = completed([(predict_moments, *run) for run in runs(args)])
        return Outcome([each["record"] for each in moments], moments, lambda group: [], failed)
    records, failed = completed([(predict_one, *run) for run in runs(args)])
    return Outcome(records, [], lambda group: [], failed)


def completed(jobs):
    """Run jobs; return the results of those that did not fail, and a Failed, or None.

    Raises:
        Failed: all of them failed.
    """
    try:
        return run_jobs(jobs), None
    except Failed as failed:
        if not failed.completed:
            raise
        return failed.completed, failed
