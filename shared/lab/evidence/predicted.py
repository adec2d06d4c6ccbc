"""Predictions of all scripts on emulated GPUs, for the pages.

`python -m shared records predicted [GROUP ...]` runs them at full size and stores the records, and
the timelines of the stages.
"""

from shared.lab.evidence.groups import emulate
from shared.lab.predict import cases, selection
from shared.lab.predict.jobs import run_jobs
from shared.lab.predict.options import parse
from shared.lab.predict.stage import predict, predict_moments
from shared.lab.records import scripts, stored
from shared.run.cli import Parser
from shared.run.errors import UserError

GROUPS = (*cases.tables()["predicted"], stored.VARIANTS)


def jobs(group):
    """Return the runs of a group: [(function, *arguments)]."""
    if group == stored.VARIANTS:
        return [(emulate, case) for case in cases.of("variants")]
    # A timeline comes with the record of its run, so the stages run once for both.
    function = predict_moments if group == stored.STAGES else predict
    jobs = []
    for options in cases.tables()["predicted"][group]:
        jobs += [(function, *run) for run in selection.runs(parse(options.split()))]
    if group == stored.SIDE_ROADS:  # the stages are a group of their own; an A100 has no FP8
        jobs = [job for job in jobs if job[1].name not in scripts.stages()]
        jobs = [job for job in jobs if "fp8" not in job[1].name or job[2].card.capability >= (8, 9)]
    return jobs


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    args = parser.parse_args(argv)
    if unknown := {*args.groups} - {*GROUPS}:
        raise UserError(f"{unknown.pop()!r} is not one of {', '.join(GROUPS)}")
    # Each group is stored at its end: all of them take long, and may be interrupted.
    for group in args.groups or GROUPS:
        records = run_jobs(jobs(group))
        if group == stored.STAGES:
            stored.write(stored.TIMELINES, stored.rounded(records))
            records = [moments["record"] for moments in records]
        made = {"command": "python -m shared records predicted"}
        stored.store_predicted(group, [{**record, **made} for record in records])
        print(f"{group}: {len(records)} records", flush=True)
