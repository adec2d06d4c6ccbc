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
from shared.cli import UserError
from shared.lab.lessons.check import changed, parts
from shared.lab.lessons.game.levels import Level
from shared.lab.lessons.game.same import other_training, other_work, train
from shared.lab.predict import tables
from shared.lab.predict.jobs import Failed, Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts
from shared.lab.records.views import computes_on_host

LIMIT, SMALL_LIMIT = 300, 120  # seconds of a run at full size, and of one with the small model
PROCESSES = 2  # on a CPU, of a script for several GPUs
KEPT = "device world_size versions git_commit date".split()


class Play(NamedTuple):
    """A file for a level."""

    level: Level
    card: str  # name in emulator.cards.CARDS
    path: Path


def as_script(path):
    """Return the records.scripts.Script of a file."""
    return scripts.Script(str(path.absolute().with_suffix("")), "", "", None, False)


def attempt(name, limit, function, script, *arguments):
    """Call a function with a script, in a process of its own, which ends after `limit` seconds.

    If the script fails, return {"failed": why, in one line}. `name` is for messages.
    """
    signal.alarm(limit)
    try:
        return function(script, *arguments)
    except UserError as error:
        return {"failed": str(error).splitlines()[-1]}
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


def line_of(error, script):
    """Return the number of the last line of a script in the traceback of an error, or None."""
    text = "".join(traceback.format_exception(error))
    lines = re.findall(rf'File "{re.escape(str(script.path))}", line (\d+)', text)
    return int(lines[-1]) if lines else None


def run(script, options):
    """Run a script at full size on an emulated card; return its record.

    If the card is too small, it has only what PyTorch said, as "said", "line", and in which
    "update".
    """
    steps = []
    register_optimizer_step_post_hook(lambda *_: steps.append(1))
    with mock.patch.dict(scripts.every(), {script.name: script}):
        try:
            return predict(script.name, options)
        except torch.OutOfMemoryError as error:
            where = {"line": line_of(error, script), "update": len(steps) + 1}
            return {"said": str(error), **where}


def results(jobs, emulated):
    """Return {job: what it returns}."""
    jobs = list(dict.fromkeys(jobs))
    if not jobs:
        return {}
    kind = "at full size, on emulated GPUs" if emulated else "of the small model, on the CPU"
    print(f"... {len(jobs)} runs {kind}", flush=True)
    try:
        return dict(zip(jobs, run_jobs(jobs, emulated)))
    except Failed as error:
        if "SIGALRM" in str(error):
            raise UserError("the script does not end: is there a loop without end?") from None
        raise


def judge(plays):
    """Return a verdict on each of the plays, in order.

    A verdict has "lines", the number of changed ones, and "card_gb". "refused" is why, or None, and
    "failed" is why, if the script ended with an error. If it ran at full size, "needs_gb" and "ms",
    the least time of a GPU for an image, are there, and "on_host", whether the host does a part of
    the work, which is not in that time. If the card was too small, "said" is what PyTorch said, in
    which "update" and "line".

    Raises:
        UserError: a script does not end, or no GPU can be emulated here.
    """
    with tempfile.TemporaryDirectory() as folder:
        starts = {}
        for level in {play.level for play in plays}:
            starts[level] = Path(folder, f"level_{level.number}.py")
            starts[level].write_text(level.text())
        return [*_judged(plays, starts).values()]


def _judged(plays, starts):
    verdicts, going = {}, []
    small = {play: _small(play.level, play.path) for play in plays}
    small_starts = {level: _small(level, path) for level, path in starts.items()}
    seen = results([*small.values(), *small_starts.values()], emulated=False)
    for play in plays:
        lines = changed(*(parts(p).lines for p in (starts[play.level], play.path)))
        mine, start = seen[small[play]], seen[small_starts[play.level]]
        verdicts[play] = {"lines": lines, "refused": None, "card_gb": CARDS[play.card].gb}
        if "failed" in mine:
            verdicts[play] |= mine
        elif reason := other_training(mine, start):
            verdicts[play]["refused"] = reason
        else:
            going.append(play)
    large = {play: _large(play) for play in going}
    roomy = {play: _large(play, starts[play.level], room=True) for play in going}
    made = results([*large.values(), *roomy.values()], emulated=True)
    short = [play for play in going if "said" in made[large[play]]]
    changes = [play for play in short if verdicts[play]["lines"]]
    more = {play: _large(play, play.path, room=True) for play in changes}
    made |= results([*more.values()], emulated=True)
    for play in going:
        verdict, start, record = verdicts[play], made[roomy[play]], made[large[play]]
        if "failed" in record:
            verdict |= record
            continue
        if play in short:
            verdict |= record
            record = made[more.get(play, roomy[play])]
        else:
            verdict["refused"] = other_work(record, start, play.level)
        verdict |= {
            "needs_gb": tables.needs(record),
            "ms": record["bound"]["ms"] * record["world_size"] / record["batch_size"],
            "on_host": computes_on_host(record),
        }
        verdict |= {name: record[name] for name in KEPT}
    return verdicts


def _small(level, path):
    several = level.gpus > 1 and parts(path).constants.get("DEVICES", "1") != "1"
    script = as_script(path)
    return attempt, script.name, SMALL_LIMIT, train, script, PROCESSES if several else 1


def _large(play, path=None, room=False):
    script, card = as_script(path or play.path), CARDS[play.card]
    options = Wanted("full", model=play.level.model, card=card, card_gb=None if room else card.gb)
    return attempt, script.name, LIMIT, run, script, options
