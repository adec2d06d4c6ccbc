"""Predictions of this repository's scripts, each in a fork of a process with all imports done."""

import dataclasses

from emulated_gpu.launch import BOUNDS_US
from emulated_gpu.why import pace
from shared.lab.predict import card_fit, tables
from shared.lab.predict.jobs import Failed, attempts, run_jobs
from shared.lab.predict.outcome import Outcome
from shared.lab.predict.selection import runs
from shared.lab.predict.stage import predict as predict_one
from shared.lab.records.reading import name


def predict(args):
    """Predict scripts as options.parse() has returned them; return an Outcome.

    Raises:
        Failed: all of them failed.
    """
    if args.fits:
        records, failed = card_fit.fits(runs(args), args.card_gb)
        return Outcome(records, tables.fitting, failed)
    every, records, failed = completed(runs(args))
    add_paces(every, records)
    return Outcome(records, depends, failed)


def completed(every):
    """Predict runs, (script, Wanted).

    Return the runs that did not fail, their records, and a Failed, or None.

    Raises:
        Failed: all of them failed.
    """
    results = attempts([(predict_one, *run) for run in every])
    done = [(run, r) for run, r in zip(every, results) if not isinstance(r, Exception)]
    failed = Failed(results) if len(done) < len(every) else None
    if failed and not done:
        raise failed
    return [run for run, _ in done], [r for _, r in done], failed


def add_paces(every, records):
    """Repeat runs that may depend on the host's pace beside a fast and a slow host; add `pace`."""
    for (script, options), record in zip(every, records):
        # Only then, since it takes two more runs.
        if record["kept_by"]:
            others = [dataclasses.replace(options, host_us=us) for us in BOUNDS_US]
            pace.add(record, run_jobs([(predict_one, script, other) for other in others]))


def depends(records):
    """Return lines of text on the figures that depend on the host's pace."""
    return [f"{name(record)}: {line}" for record in records for line in pace.lines(record)]
