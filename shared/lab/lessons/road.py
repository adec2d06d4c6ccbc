"""Make the records of one side road, and put its figures on the pages.

`python -m shared records road 06_sgd/ema` predicts the road at full size, measures it in the tiny
preset on the CPU, stores both records, and writes the generated parts of the pages. The records of
other scripts stay as they are.
"""

import os

from shared.lab.evidence import predicted
from shared.lab.ladder import command as ladder
from shared.lab.lessons import pages
from shared.lab.predict.jobs import run_jobs
from shared.lab.records import scripts, stored
from shared.lab.records.reading import read
from shared.lab.records.running import git
from shared.run import record
from shared.run.cli import Parser
from shared.run.errors import UserError
from shared.run.record import ROOT

OUT = "out/road"  # in the repository: of the measurement
GROUPS = (stored.SIDE_ROADS, stored.ONE_GPU)  # of predictions; few roads are in the second, too


def checked(name):
    """Return the name of a committed side road, whose docstring says what tests compare.

    Raises:
        UserError: it is no such script.
    """
    script = scripts.get(name.removesuffix(".py"))
    if not script.side_road:
        raise UserError(
            f"{script.name} is a stage; python -m shared records predicted makes its records"
        )
    for key in ("cost", "losses", "memory"):
        getattr(script, key)  # raises UserError if the docstring lacks it
    # git_commit() does not count files that git has never seen; it is None without git.
    unseen = git("ls-files", "--error-unmatch", script.path).returncode
    if unseen or record.git_commit().endswith("-dirty"):
        raise UserError(f"commit all changes first, and {script.name}.py: records name a commit")
    return script.name


def predictions(name):
    """Return the predictions of a road, {group: record}."""
    # job[1] is the script, after the function.
    every = [(group, job) for group in GROUPS for job in predicted.jobs(group)]
    jobs = [(group, job) for group, job in every if job[1].name == name]
    records = run_jobs([job for _, job in jobs])
    command = f"python -m shared records road {name}"
    return {group: {**made, "command": command} for (group, _), made in zip(jobs, records)}


def measurement(name):
    """Run a road in the tiny preset, and return its record; if it fails, exit with code 1."""
    ladder.main([name, "--preset", "tiny", "--out", OUT, "--fresh"])
    records, _ = read(ROOT / OUT / "ladder.jsonl")
    return records[-1]  # the ladder appends; those before are of earlier calls


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("road", metavar="SCRIPT", help="a committed side road, such as 06_sgd/ema")
    name = checked(parser.parse_args(argv).road)
    os.chdir(ROOT)  # the record has the command with its folder, as the others have
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # stored measurements of the tiny preset are of CPUs
    print(f"- predicting {name} at full size", flush=True)
    predicted_records = predictions(name)
    measured = measurement(name)
    # Only when all is made: a run that fails leaves the stored records as they were.
    for group, made in predicted_records.items():
        stored.insert(stored.PREDICTED, stored.prediction(group, made))
    stored.insert(stored.TINY_SIDE_ROADS, measured)
    pages.main([])
    print(f"- {name} has its records and is on the pages; commit what git status shows")
