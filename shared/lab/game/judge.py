"""The judge: does a script fit on the emulated card, and is it still the same training?"""

import re
import signal
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from emulated_gpu.cards import CARDS
from shared.errors import UserError
from shared.lab.game import texts
from shared.lab.game.levels import Level
from shared.lab.game.observe import observe
from shared.lab.grading.same_training import same_training
from shared.lab.grading.source import num_changed, parts
from shared.lab.predict import tables
from shared.lab.predict.jobs import Failed, Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import reading, scripts
from shared.lab.records.scripts import Script

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


def line_of(error, script):
    """Return the number of the last line of a script in the traceback of an error, or None."""
    text = "".join(traceback.format_exception(error))
    lines = re.findall(rf'File "{re.escape(str(script.path))}", line (\d+)', text)
    # The last, since it is the innermost of the script's own calls.
    return int(lines[-1]) if lines else None


def run(script, options):
    """Run a script at full size on an emulated card; return its record.

    If the card is too small, return {"said": PyTorch's message, "line": of the script, or None,
    "update": the number of the update} instead.
    """
    steps = []  # one entry for each step: the number of the update that runs out of memory
    register_optimizer_step_post_hook(lambda *_: steps.append(1))
    # predict() looks scripts up by name, and a player's file is none of the stages.
    with mock.patch.dict(scripts.every(), {script.name: script}):
        try:
            return predict(script.name, options)
        except torch.OutOfMemoryError as error:
            line = line_of(error, script)
            return {"said": str(error), "line": line, "update": len(steps) + 1}


def results(jobs, emulated):
    """Run jobs, each of them once; return {job: its result}."""
    jobs = list(dict.fromkeys(jobs))  # several plays may begin from one level's script
    if not jobs:
        return {}
    kind = "at full size, on emulated GPUs" if emulated else "of the small model, on the CPU"
    print(f"... {len(jobs)} runs {kind}", flush=True)
    try:
        return dict(zip(jobs, run_jobs(jobs, emulated)))
    except Failed as error:
        # The alarm has ended the process, so nothing but the signal is known.
        if "SIGALRM" in str(error):
            raise UserError("the script does not end: is there a loop without end?") from None
        raise


def judge(plays):
    """Return a verdict on each of the plays, in order.

    A verdict is a dictionary with "lines", the number of changed ones, "card_gb", and "refused",
    the reason or None. Further keys depend on the outcome:

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
        verdicts = first_verdicts(plays, starts)
        going = [play for play, verdict in verdicts.items() if is_open(verdict)]
        for play, outcome in full_size(going, starts, verdicts).items():
            verdicts[play] |= outcome
        return [*verdicts.values()]


def is_open(verdict):
    """Return whether the small model leaves the verdict to the run at full size."""
    return "failed" not in verdict and not verdict["refused"]


def first_verdicts(plays, starts):
    """Train the small model by each play and each level; return {play: verdict so far}."""
    small = {play: small_job(play.level, play.path) for play in plays}
    small_starts = {level: small_job(level, path) for level, path in starts.items()}
    trained = results([*small.values(), *small_starts.values()], emulated=False)
    verdicts = {}
    for play in plays:
        sources = (parts(path).lines for path in (starts[play.level], play.path))
        verdict = {"lines": num_changed(*sources), "refused": None}
        verdict["card_gb"] = CARDS[play.card].gb
        training = trained[small[play]]
        if failed(training):
            verdict |= training
        else:
            reference = trained[small_starts[play.level]]
            verdict["refused"] = texts.refusal(same_training(training, reference))
        verdicts[play] = verdict
    return verdicts


def full_size(plays, starts, verdicts):
    """Run plays on their cards, and on cards with room for all of it; return {play: outcome}."""
    large = {play: large_job(play, play.path) for play in plays}
    roomy_starts = {play: large_job(play, starts[play.level], room=True) for play in plays}
    made = results([*large.values(), *roomy_starts.values()], emulated=True)
    # What a changed script would need is known only after a run on a larger card; what the level's
    # own script needs is known from its run above.
    short = [play for play in plays if "said" in made[large[play]]]
    changed = [play for play in short if verdicts[play]["lines"]]
    roomy = {play: large_job(play, play.path, room=True) for play in changed}
    made |= results([*roomy.values()], emulated=True)
    outcomes = {}
    for play in plays:
        record = made[large[play]]
        start = made[roomy_starts[play]]
        if failed(record):
            outcomes[play] = record
        elif play in short:
            needs = made[roomy[play]] if play in roomy else start
            outcomes[play] = needs if failed(needs) else record | figures(needs)
        else:
            refused = texts.refusal_at_full_size(record, start, play.level)
            outcomes[play] = {"refused": refused} | figures(record)
    return outcomes


def figures(record):
    """Return the figures of a verdict, from the record of a run at full size."""
    return {
        "needs_gb": tables.needs(record),
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
    card_gb = None if room else card.gb
    options = Wanted("full", model=play.level.model, card=card, card_gb=card_gb)
    return attempt, script.name, LIMIT, run, script, options
