"""Figures of the misconceptions, and other predictions by the commands that the pages show."""

import shlex

from shared.lab.predict import cases, options, selection
from shared.lab.predict.jobs import run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import stored
from shared.lab.records.exercises import PREDICT
from shared.run.cli import Parser


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


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    things = cases.tables()["misconceptions"]
    commands = [command for thing in things for command in thing.get("commands", ())]
    records = [record for printed in predictions(commands).values() for record in printed]
    stored.write(stored.MISCONCEPTIONS, stored.rounded(records))
    print(f"{stored.MISCONCEPTIONS.name}: {len(records)} records")
