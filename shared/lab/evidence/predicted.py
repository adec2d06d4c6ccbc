"""Predictions of all scripts on emulated GPUs, for the pages.

`python -m shared records predicted [GROUP ...]` runs them at full size and stores the records, and
the timelines of the stages.
"""

from shared.lab.evidence import variants
from shared.lab.predict import selection
from shared.lab.predict.jobs import run_jobs
from shared.lab.predict.options import parse
from shared.lab.predict.stage import predict, predict_moments
from shared.lab.records import scripts, stored
from shared.run.cli import Parser
from shared.run.errors import UserError

LANGUAGE = (
    "meta-llama/Meta-Llama-3-8B,distilbert-base-uncased,google-bert/bert-large-uncased,"
    "Qwen/Qwen3-0.6B"
)
# The options of `python -m shared predict` for each group.
OPTIONS = {
    stored.SIDE_ROADS: ["--side-roads", "11_llm/fp8 --card h100"],
    stored.ONE_GPU: [f"{','.join(scripts.ON_ONE_GPU)} --devices 1"],
    stored.VITS: ["01-10 --model vit_b_16,vit_h_14"],
    stored.TEXT: [
        f"11 --model {LANGUAGE} --one-by-one",
        f"11_llm/train --model {LANGUAGE} --devices 1",
    ],
}


def jobs(group):
    """Return the runs of a group: [(function, *arguments)]."""
    if group == stored.VARIANTS:
        return [(variants.emulate, variant) for variant in variants.VARIANTS]
    jobs = []
    for options in OPTIONS[group]:
        jobs += [(predict, *run) for run in selection.runs(parse(options.split()))]
    if group == stored.SIDE_ROADS:  # the stages are a group of their own; an A100 has no FP8
        jobs = [job for job in jobs if job[1].side_road]
        jobs = [job for job in jobs if "fp8" not in job[1].name or job[2].card.fp8]
    return jobs


def timelines():
    """Run the stages, store their timelines, and return their records."""
    # A timeline comes with the record of its run, so the stages run once for both.
    runs = selection.runs(parse([]))
    drawn = run_jobs([(predict_moments, *run) for run in runs])
    stored.write(stored.TIMELINES, stored.rounded(drawn))
    return [moments["record"] for moments in drawn]


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    every = (stored.STAGES, *OPTIONS, stored.VARIANTS)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(every)}")
    args = parser.parse_args(argv)
    if unknown := {*args.groups} - {*every}:
        raise UserError(f"{unknown.pop()!r} is not one of {', '.join(every)}")
    # Each group is stored at its end: all of them take long, and may be interrupted.
    for group in args.groups or every:
        records = timelines() if group == stored.STAGES else run_jobs(jobs(group))
        made = {"command": "python -m shared records predicted"}
        stored.store_predicted(group, [{**record, **made} for record in records])
        print(f"{group}: {len(records)} records", flush=True)
