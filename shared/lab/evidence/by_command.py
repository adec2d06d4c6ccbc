"""Predictions by the commands that the pages show."""

import shlex

from shared.lab.predict import options, selection
from shared.lab.predict.jobs import run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records.exercises import PREDICT


def predictions(commands):
    """Return the predictions of `python -m shared predict` commands, {command: list of records}.

    A run that several commands have in common is made once.
    """
    runs = {}
    for command in commands:
        args = options.parse(shlex.split(command.removeprefix(PREDICT)))
        runs[command] = selection.runs(args)
    # In one call, so that runs of different commands go side by side.
    jobs = list(dict.fromkeys(job for jobs in runs.values() for job in jobs))
    records = dict(zip(jobs, run_jobs([(predict, *job) for job in jobs])))
    return {
        command: [{**records[job], "command": command} for job in jobs]
        for command, jobs in runs.items()
    }
