"""The judge: does a script fit on the emulated card, and is it still the same training?"""

import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from emulated_gpu.cards import CARDS
from emulated_gpu.why.fit import needs
from shared.lab.game.levels import Level
from shared.lab.game.observe import observe
from shared.lab.grading import aspects
from shared.lab.grading.sentences import first_wrong
from shared.lab.grading.source import line_of, parts
from shared.lab.predict.jobs import Failed, Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import markdown, reading
from shared.lab.records.scripts import Script
from shared.run.errors import UserError

LIMIT = 300  # seconds of a run at full size
SMALL_LIMIT = 120  # seconds of a run with the small model
PROCESSES = 2  # on a CPU, of a script for several GPUs
KEPT = "device world_size versions git_commit date".split()  # of a record, for the sheet


class Play(NamedTuple):
    """A file for a level."""

    level: Level
    card: str  # name in emulated_gpu.cards.CARDS
    path: Path


def attempt(name, limit, function, script, *arguments):
    """Call a function with a script, in a process of its own, which ends after `limit` seconds.

    If the script fails, return {"failed": why, in one line}. `name` is for messages.
    """
    signal.alarm(limit)  # ends this process, which results() reports as a loop without end
    try:
        return function(script, *arguments)
    except UserError as error:
        return {"failed": str(error).splitlines()[-1]}
    # A player's script may call sys.exit(), which is no Exception.
    except (Exception, SystemExit) as error:
        text = str(error).strip() or type(error).__name__
        if isinstance(error, SystemExit):
            text = f"it ended itself, with exit code {error.code or 0}"
        why = text.splitlines()[-1].strip()[:300]
        line = line_of(error, script)
        where = f"{script.path.name}, line {line}" if line else script.path.name
        return {"failed": f"{where}: {why}"}
    finally:
        signal.alarm(0)


def failed(result):
    """Return whether a result of attempt() is that of a script that failed."""
    return isinstance(result, dict) and "failed" in result


def run(script, options):
    """Run a script at full size on an emulated card; return its record.

    If the card is too small, return {"said": PyTorch's message, "line": of the script, or None,
    "update": the number of the update} instead.
    """
    steps = []  # one entry for each step: the number of the update that runs out of memory
    register_optimizer_step_post_hook(lambda *_: steps.append(1))
    try:
        return predict(script, options)
    except torch.OutOfMemoryError as error:
        line = line_of(error, script)
        return {"said": str(error), "line": line, "update": len(steps) + 1}


def results(jobs, emulated, titles, of):
    """Run jobs, each of them once; return {job: its result}.

    Say on stderr what begins: `titles` are of runs that begin together, each with its number, and
    `of` is the number of all runs.
    """
    jobs = list(dict.fromkeys(jobs))  # several plays may begin from one level's script
    if not jobs:
        return {}
    for number, title in titles.items():
        print(f"{number} of {of}: {title}", file=sys.stderr, flush=True)
    try:
        return dict(zip(jobs, run_jobs(jobs, emulated)))
    except Failed as error:
        # The alarm has ended the process, so nothing but the signal is known.
        if "SIGALRM" in str(error):
            raise UserError("the script does not end: is there a loop without end?") from None
        raise


def judge(plays):
    """Return a verdict on each of the plays, in order.

    A verdict is a dictionary with "lines", the number of changed ones, "card_gb", and "refused"
    and "slow", each the reason or None. Further keys depend on the outcome:

    - the script ended with an error: "failed", the reason;
    - it ran at full size: "needs_gb" and "ms", an emulated GPU's time for an image, and
      "on_host", whether the host does a part of the work, whose time "ms" leaves out;
    - it ran out of memory there: "said", PyTorch's message, "update" and "line", where that was.

    Raises:
        UserError: a script does not end, or no GPU can be emulated here.
    """
    with tempfile.TemporaryDirectory() as folder:
        starts = {}
        # Once for each level: the sheet has many plays of one.
        for level in {play.level for play in plays}:
            starts[level] = Path(folder, f"level_{level.number}.py")
            starts[level].write_text(level.text())
        verdicts = {play: first_verdict(play, starts[play.level]) for play in plays}
        # Four runs, and the first of them decides most tries: then two are enough.
        fitting = run_on_cards(verdicts)
        alike = compare_small_models(fitting, starts, verdicts)
        compare_at_full_size(alike, references(starts), verdicts)
        return [*verdicts.values()]


def references(starts):
    """Return the script of each level that an update at full size is compared with, as a path.

    A level's own script may compute more than is needed.
    """
    paths = {**starts}
    for level, start in starts.items():
        if level.reference:
            paths[level] = start.with_stem(f"reference_{level.number}")
            paths[level].write_text(level.text(level.reference))
    return paths


def first_verdict(play, start):
    """Return what is known without a run."""
    sources = (parts(path).lines for path in (start, play.path))
    gb = play.level.card_gb(play.card)
    return {"lines": markdown.num_changed(*sources), "refused": None, "slow": None, "card_gb": gb}


def whose(plays):
    """Return the scripts of plays, as the subject of a line."""
    return f"{len(plays)} scripts" if len(plays) > 1 else plays[0].path.name


def run_on_cards(verdicts):
    """Run plays on their cards, and those that run out of memory with room for all of it, too.

    Put the outcomes into verdicts; return the others, {play: record}.
    """
    plays = [*verdicts]
    large = {play: large_job(play, play.path) for play in plays}
    titles = {card_title(play) for play in plays}
    where = titles.pop() if len(titles) == 1 else "emulated GPUs"
    made = results([*large.values()], True, {1: f"{whose(plays)} at full size on {where}"}, 4)
    records = {play: made[job] for play, job in large.items()}
    short = [play for play, record in records.items() if "said" in record]
    for play in short:
        said = f"out of memory in update {records[play]['update']}"
        print(f"{play.path.name}: {said}", file=sys.stderr, flush=True)
    # What a script would need is known only after a run on a larger card.
    roomy = {play: large_job(play, play.path, room=True) for play in short}
    title = "the same with room for all of it: how much is missing?"
    made = results([*roomy.values()], True, {2: title}, 2)
    for play, record in records.items():
        if play in roomy:
            full = made[roomy[play]]
            verdicts[play] |= full if failed(full) else record | figures(full)
        elif failed(record):
            verdicts[play] |= record
    return {play: record for play, record in records.items() if is_open(verdicts[play])}


def is_open(verdict):
    """Return whether a verdict is left to further runs."""
    return not ({"failed", "said"} & verdict.keys() or verdict["refused"])


def compare_small_models(fitting, starts, verdicts):
    """Train the small model by each play and each level; return what trains alike of `fitting`.

    Put into verdicts why the others do not.
    """
    small = {play: small_job(play.level, play.path) for play in fitting}
    levels = {play.level for play in fitting}
    small_starts = {level: small_job(level, starts[level]) for level in levels}
    titles = {
        2: "it fits; the small model by the same, on the CPU",
        3: "the small model by the level's own script, beside it",
    }
    trained = results([*small.values(), *small_starts.values()], False, titles, 4)
    for play, job in small.items():
        training = trained[job]
        if failed(training):
            verdicts[play] |= training
        else:
            reference = trained[small_starts[play.level]]
            verdicts[play]["refused"] = first_wrong(aspects.training(training, reference))
    return {play: record for play, record in fitting.items() if is_open(verdicts[play])}


def compare_at_full_size(alike, paths, verdicts):
    """Compare records at full size, {play: record}, with those of the levels' references."""
    jobs = {play: large_job(play, paths[play.level], room=True) for play in alike}
    title = "the level's own at full size: is nothing left out?"
    made = results([*jobs.values()], True, {4: title}, 4)
    for play, record in alike.items():
        reference = made[jobs[play]]
        verdict = verdicts[play]
        verdict |= figures(record)
        level = play.level
        verdict["refused"] = first_wrong(aspects.at_full_size(record, reference, level.gpus))
        if not verdict["refused"]:
            pace = aspects.pace(verdict, figures(reference), level.times_as_long)
            verdict["slow"] = first_wrong(pace)


def card_title(play):
    """Return the emulated card of a play as text."""
    several = f"{play.level.gpus} emulated" if play.level.gpus > 1 else "an emulated"
    return f"{several} {CARDS[play.card].title}"


def figures(record):
    """Return the figures of a verdict, from the record of a run at full size."""
    return {
        "needs_gb": needs(record),
        "ms": reading.emulated_ms(record),
        "on_host": reading.computes_on_host(record),
        **{name: record[name] for name in KEPT},
    }


def small_job(level, path):
    """Return the job that trains the small model by the script in a file."""
    # A script that still says DEVICES = 1 in a level for several GPUs trains in one process.
    several = level.gpus > 1 and parts(path).constants.get("DEVICES", "1") != "1"
    script = Script.of_file(path)
    return attempt, script.name, SMALL_LIMIT, observe, script, PROCESSES if several else 1


def large_job(play, path, room=False):
    """Return the job that runs a file at full size; with room, on a card that is large enough."""
    script = Script.of_file(path)
    card = CARDS[play.card]
    # None: as much as the script takes.
    card_gb = None if room else play.level.card_gb(play.card)
    options = Wanted("full", model=play.level.model, card=card, card_gb=card_gb)
    return attempt, script.name, LIMIT, run, script, options
