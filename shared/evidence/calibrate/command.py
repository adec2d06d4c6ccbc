"""Compares measurements on this computer's GPU with what was predicted, in pieces.

It measures the size of the CUDA context, trains with every script for a few updates on noise, from
random weights, and measures what single operations allocate for themselves. What is measured is
kept at once, in files named after the GPU, and the same command goes on where it stopped. Without a
GPU it does the same with the tiny preset, as a test of itself.
"""

import json
import re
import subprocess
import sys
import time
import types
from functools import partial
from pathlib import Path

import torch

from shared.cli import Parser, UserError
from shared.evidence.calibrate import operations, report
from shared.evidence.on_cpu import same
from shared.ladder.before import digest, fingerprint
from shared.predict import cards
from shared.predict.jobs import Wanted, call, run_jobs
from shared.predict.simulation import predict
from shared.records import scripts
from shared.records.record import append, git_commit
from shared.records.running import run_script
from shared.records.scripts import ROOT
from shared.records.views import RESULTS, aligned, by_script, read, read_list
from shared.records.writing import write_text

COMMAND = "python -m shared.evidence.calibrate"  # whatever part of it is done at a time
UPDATES = 10  # of each script: the first three are not timed
AT_ONCE = 2  # predictions, as many as run_jobs() makes at a time
# Whose operations are measured: fp32; bf16; few images at once, so that workspaces are small; text.
WATCHED = ("01_baseline/train", "03_bf16/train", "05_grad_accum/train", "11_llm/before")
LONGEST = 480  # seconds of a process that measures operations
MOST_OPERATIONS = 25  # in the last table; the file has all of them


class Store:
    """The results of one device in a folder.

    Attributes:
        measured: {number of GPUs: {script: record}}; a file for each number.
        checked: list of predictions, each with its measurement as "measured".
        about: what was found about operations and the CUDA context.
    """

    def __init__(self, folder, device):
        slug = re.sub(r"[^a-z0-9]+", "-", device.lower())
        self.files = {1: folder / f"{slug}.jsonl", 4: folder / f"{slug}-4-gpus.jsonl"}
        self.checked_file = folder / f"{slug}-checked.json"
        self.about_file = folder / f"{slug}-operations.json"
        there = {n: file for n, file in self.files.items() if file.exists()}
        self.measured = {1: {}, 4: {}} | {n: by_script(read(f)[0]) for n, f in there.items()}
        self.checked = read_list(self.checked_file) if self.checked_file.exists() else []
        self.about = json.loads(self.about_file.read_text()) if self.about_file.exists() else {}

    def add(self, record, n):
        """Keeps a measurement on n GPUs."""
        append(self.files[n], record)
        self.measured[n][record["script"]] = record

    def check(self, prediction):
        """Keeps a prediction with its measurement, in place of an earlier one."""
        others = [p for p in self.checked if _key(p) != _key(prediction)]
        self.checked = [*others, prediction]
        write_text(self.checked_file, json.dumps(self.checked, indent=1) + "\n")

    def is_checked(self, record, mark):
        """Tells whether there is a prediction for a measurement that was made with this code."""
        return any(_key(p) == _key(record) and p["fingerprint"] == mark for p in self.checked)

    def tell(self, **found):
        """Keeps what was found about operations and the context."""
        self.about.update(found)
        write_text(self.about_file, json.dumps(self.about, indent=1) + "\n")


def _key(record):
    return record["script"], record["world_size"]


class Work:
    """What is to be measured here: on GPUs at full size, without one with the tiny preset."""

    def __init__(self, out, store, card):
        """Prepares it.

        Args:
            out: folder for logs.
            store: Store.
            card: what child.context() returns; None without a GPU.
        """
        self.logs, self.store, self.card = out / "logs", store, card
        self.preset = "full" if card else "tiny"
        self.gpu = card and cards.of_this_machine(types.SimpleNamespace(**card))
        self.on = [card["name"] if card else "CPU"]  # another machine with this GPU may go on
        code = [*sorted((ROOT / "shared" / "predict").glob("*.py")), Path(operations.__file__)]
        self.code = digest(code)  # that predicts

    def pieces(self, names):
        """Yields what is not done yet of some scripts: (what it is, function that does it)."""
        modules = {}
        for name in names:
            try:
                modules[name] = scripts.get(name).load()
            except (ImportError, UserError) as error:
                print(f"- left out: {error}", flush=True)
        several = self.card and torch.cuda.device_count() >= 4
        for n in (1, 4) if several else (1,):
            yield from self._trainings(modules, n)
            yield from self._predictions(modules, n)
        for name in [name for name in WATCHED if name in modules]:
            options = self._options(modules[name])
            mark = fingerprint(name, options, modules[name].TASK, [*self.on, self.code])
            if self.store.about.get("operations", {}).get(name, {}).get("fingerprint") != mark:
                yield f"operations of {name}", partial(self._watch, name, options, mark)

    def _options(self, module):
        model = module.TASK.presets[self.preset]["model"]
        return ["--preset", self.preset, "--model", model, "--data", "fake", "--no-pretrained"]

    def _trainings(self, modules, n):
        for name, module in modules.items():
            plain = scripts.get(name).plain
            options = [*self._options(module), "--max-steps", str(UPDATES)]
            options += ["--devices", str(n)] if module.DEVICES > 1 and not plain else []
            mark = fingerprint(name, [*options, f"x {n}"], module.TASK, self.on)
            known = self.store.measured[n].get(name, {}).get("fingerprint") == mark
            if module.DEVICES >= n and not known:
                processes = n if n > 1 and plain else None
                title = name if n == 1 else f"{name} on {n} GPUs"
                yield title, partial(self._train, name, options, n, processes, mark)

    def _train(self, name, options, n, processes, mark):
        log = self.logs / f"{name.replace('/', '_')}-{n}.log"
        record, last = run_script(name, options, log, processes)
        if not record:
            raise UserError(last)
        self.store.add({**record, "fingerprint": mark, "ladder": COMMAND}, n)

    def _predictions(self, modules, n):
        wanted = []
        for name, record in self.store.measured[n].items():
            mark = digest([], f"{self.code} {record['fingerprint']}".encode())
            if name in modules and not self.store.is_checked(record, mark):
                wanted.append((record, mark))
        for i in range(0, len(wanted), AT_ONCE):
            some = wanted[i : i + AT_ONCE]
            names = ", ".join(record["script"] for record, _ in some)
            yield f"predicting {names}", partial(self._predict, some)

    def _predict(self, some):
        found = run_jobs([(predicted, record, self.gpu) for record, _ in some])
        for (record, mark), made in zip(some, found):
            if isinstance(made, dict):
                more = {"command": COMMAND, "fingerprint": mark, "measured": record}
                self.store.check({**made, **more})
        if why := [made for made in found if isinstance(made, str)]:
            raise UserError("; ".join(why))

    def _watch(self, name, options, mark):
        if self.card:
            log = self.logs / f"{name.replace('/', '_')}-operations.log"
            rows = in_child(log, name, *options)
        else:
            wanted = Wanted("gpu", self.preset, options[options.index("--model") + 1])
            (rows,) = run_jobs([(operations.simulated, name, wanted)])
        known = self.store.about.get("operations", {})
        self.store.tell(operations={**known, name: {"fingerprint": mark, "rows": rows}})


def predicted(record, card):
    """Returns what is predicted for a measurement, a record, or in one line why nothing is."""
    device, updates = "gpu" if card else "cpu", len(record["input_shapes"])
    try:
        return call(predict, record["script"], same(record, device, updates=updates, card=card))
    except UserError as error:
        return str(error)


def in_child(log, *arguments):
    """Returns what child.py finds with these arguments; what it prints goes to a log.

    Raises:
        UserError: it failed, or was not done after LONGEST seconds.
    """
    found = log.with_suffix(".json")
    command = [sys.executable, "-m", "shared.evidence.calibrate.child", str(found), *arguments]
    try:
        with log.open("w") as out:
            subprocess.run(command, stdout=out, stderr=out, timeout=LONGEST, check=True)
    except subprocess.SubprocessError:
        last = (log.read_text(errors="replace").splitlines() or ["nothing printed"])[-1]
        raise UserError(f"{last} ({log})") from None
    return json.loads(found.read_text())


def groups(names):
    """Returns the scripts in order of importance, lists of names; all, if names is None."""
    ladder = scripts.ladder()
    texts = [name for name in scripts.stages() if name not in ladder]
    every = (ladder, texts, scripts.plain(), scripts.side_roads())
    return [[name for name in some if names is None or name in names] for some in every]


def do(pieces, minutes):
    """Does pieces until the time is over.

    Args:
        pieces: of Work.pieces().
        minutes: no piece is begun that would end later if it took as long as the longest one until
            now. The first one is begun anyway.

    Returns:
        the names of the pieces that are left, and {name of a piece: why it failed}.
    """
    started, longest, left, failed = time.monotonic(), 0, [], {}
    for name, function in pieces:
        begun = time.monotonic()
        if left or longest and begun - started + longest > 60 * minutes:
            left.append(name)
            continue
        print(f"{name:40} starts", flush=True)
        try:
            function()
        except UserError as error:
            failed[name] = str(error)
        took = time.monotonic() - begun
        longest = max(longest, took)
        print(f"{name:40} {failed.get(name, 'done')} ({took:.0f} s)", flush=True)
    return left, failed


def show(store, names):
    """Prints what is known until now of some scripts."""
    if checked := [p for p in store.checked if p["script"] in names]:
        checked.sort(key=lambda p: (p["world_size"], names.index(p["script"])))
        print("\nPeaks while training, per device:\n")
        heading, *rows = report.trainings(checked)
        print(*aligned(heading, rows), sep="\n")
    if found := store.about.get("operations"):
        simulated = "" if "context" in store.about else ", on a simulated GPU, as a test"
        print(f"\nWhat operations allocate besides their results{simulated}:\n")
        heading, *rows = report.table(report.compared(found)[:MOST_OPERATIONS])
        print(*aligned(heading, rows), sep="\n")
        print(f"\n- {report.formulas(found)}; all of them: {store.about_file}")


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    which = "which, such as 06, 01-06,08 or 06_sgd/plain (default: all)"
    minutes = "begin nothing that would probably end after N minutes (default: 8)"
    out = "folder for logs, and without a GPU for the results (default: out/calibrate)"
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=which)
    parser.add_argument("--minutes", type=float, default=8, metavar="N", help=minutes)
    parser.add_argument("--out", type=Path, default=Path("out/calibrate"), metavar="DIR", help=out)
    args = parser.parse_args(argv)
    (args.out / "logs").mkdir(parents=True, exist_ok=True)
    chosen = groups(scripts.select(args.stages, "stage") if args.stages else None)
    card = in_child(args.out / "logs" / "context.log") if torch.cuda.is_available() else None
    store = Store(RESULTS if card else args.out, card["name"] if card else "cpu")
    if card:
        print(f"- {card['name']}: {report.context(card)}", flush=True)
        store.tell(context=card)
    store.tell(torch=torch.__version__, git_commit=git_commit())
    print(f"- results go to {store.about_file.parent}; logs to {args.out / 'logs'}", flush=True)
    work = Work(args.out, store, card)
    pieces = (piece for names in chosen for piece in work.pieces(names))
    left, failed = do(pieces, args.minutes)
    show(store, [name for names in chosen for name in names])
    if left:
        print(f"- left: {', '.join(left)}\n- the same command goes on")
    if failed:
        print("- FAILED: " + "; ".join(f"{name}: {why}" for name, why in failed.items()))
        sys.exit(1)
