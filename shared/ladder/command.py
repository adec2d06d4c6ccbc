"""Runs the scripts one after the other, each in a process of its own; shows what each one saved.

Writes ladder.jsonl (a record per script), ladder.png and logs/ into --out. When it is run again, it
continues where it stopped: what was measured before with the same options, code and versions is not
measured again.
"""

import sys
import time
import types
from pathlib import Path

import torch

from shared.cli import UserError, command_of
from shared.common.files import writable, writable_folder
from shared.common.options import add_stages, beside, parser, selected
from shared.common.options import choose as choose_model
from shared.common.writing import append, replaceable, room
from shared.images.task import TASK as IMAGES
from shared.ladder.fingerprint import fingerprint
from shared.ladder.folder import alone, readable
from shared.predict import cards
from shared.predict.jobs import PRELOADED, Wanted, run_jobs
from shared.predict.simulation import predict as simulate
from shared.records import bars, scripts, tables
from shared.records.record import TINY_MEASURED, by_model, by_script, read, setting
from shared.records.running import forks, run_script
from shared.text.task import TASK as TEXTS


def script_options(args):
    """Returns the command line that a script gets from the ladder's."""
    options = ["--preset", args.preset, "--model", args.model, "--data", args.data]
    options += ["--epochs", args.epochs, "--seed", args.seed, *args.task.passed_on(args)]
    options += ["--max-steps", args.max_steps] if args.max_steps else []
    options += ["--devices", args.devices] if args.devices else []
    options += [] if args.pretrained else ["--no-pretrained"]
    return [str(option) for option in options]


def predict(chosen, records):
    """Returns what is predicted for measured scripts, {script: record}; {} if that fails.

    A failure of any kind is printed and not raised, so that what was measured is not lost.

    Args:
        chosen: {script: its options, as options.choose() and the task fill them in}.
        records: of these scripts.
    """
    jobs = []
    for r in records:
        args = chosen[r["script"]]
        sizes = {
            "image_px": r.get("image_px"),
            "max_length": r.get("max_length"),
            "input_shapes": r["input_shapes"],
            "updates": len(r["input_shapes"]),
            "devices": r["world_size"],
            "num_classes": args.num_classes,
            "trust_remote_code": getattr(args, "trust_remote_code", False),
        }
        device = "cpu" if args.accelerator == "cpu" else "gpu"
        if device == "gpu":
            sizes["card"] = cards.of_this_machine(torch.cuda.get_device_properties(0))
        options = Wanted(device, args.preset, args.model, **sizes)
        jobs.append((simulate, r["script"], options))
    try:
        return by_script(run_jobs(jobs))
    except Exception as error:
        print(f"- no predictions: {type(error).__name__}: {error}")
        return {}


def choose(args, names):
    """Returns what to run, {script: its options}, after making what all of them need.

    Data and weights are prepared here, once. So a mistake that every script would make is reported
    before the first one starts, and no script's time includes a download.

    Args:
        args: the ladder's options.
        names: the scripts that were asked for; if None, those that --model and --data suit.

    Raises:
        UserError: a model or data set is not there, or no script is about it.
    """
    chosen, prepared = {}, {}
    for name in beside(args, names or scripts.stages()):
        task = scripts.get(name).load().cli.TASK
        suits_model = not args.model or task.knows(args.model)
        suits_data = not args.data or task.suits(args.data)
        if name not in (names or ()) and not (suits_model and suits_data):
            continue
        if task not in prepared:
            prepared[task] = types.SimpleNamespace(**vars(args))
            choose_model(prepared[task], task)
            task.prepare(prepared[task])
        chosen[name] = prepared[task]
    for option in ("max_length", "limit", "trust_remote_code"):
        if getattr(args, option) and not any(task.unit == TEXTS.unit for task in prepared):
            raise UserError(
                f"--{option.replace('_', '-')} is about texts, and none of the scripts asked for "
                "is; leave it out, or add stage 11"
            )
    if not chosen:
        raise UserError(
            f"--model {args.model} and --data {args.data} do not suit each other: one is about "
            "images, the other about texts"
        )
    return chosen


class Expectation:
    """Estimates how long scripts are going to take, from how long they took before.

    The earlier runs are those in the same output folder, or else those in the repository's records,
    on another machine. The scripts that have run here show how much faster or slower this one is.
    """

    def __init__(self, known):
        """Takes in the earlier runs.

        Args:
            known: records of measurements that have "seconds".
        """
        asked = ((r, r["command"] or "") for r in known)
        whole = [r for r, command in asked if r["epochs"] == 1 and "--max-steps" not in command]
        self.before = {_same(r): r.get("seconds") for r in whole}
        self.here = self.there = 0.0

    def of(self, name, args):
        """Returns about how many seconds a script takes, None if that is not known."""
        if args.max_steps or args.epochs > 1:
            return None
        seconds = self.before.get(_wanted(name, args))
        return seconds and seconds * (self.here / self.there if self.there else 1)

    def took(self, name, args, seconds):
        """Takes in how many seconds a script took."""
        if before := self.before.get(_wanted(name, args)):
            self.here, self.there = self.here + seconds, self.there + before


def _same(record):
    return record["script"], setting(record), record["dataset"]


def _wanted(name, args):
    sizes = {"model": args.model, **args.task.settings(args)}
    return _same({"script": name, "dataset": args.dataset, **sizes})


def measure(args, chosen):
    """Runs the chosen scripts that were not measured yet; prints the tables, draws the picture.

    Args:
        args: the ladder's options.
        chosen: {script: its options}.

    Returns:
        the scripts that failed.
    """
    writable_folder(args.out / "logs", "--out")
    file = args.out / "ladder.jsonl"
    known = readable(file)
    expected = Expectation([*read(TINY_MEASURED)[0], *known])
    records, failed, wide = [], [], max(24, *map(len, chosen))
    for name, its in chosen.items():
        options = script_options(its)
        mark = fingerprint(name, options, its.task)
        same = (r for r in reversed(known) if r.get("fingerprint") == mark and not args.fresh)
        record = next(same, None)
        if record:
            print(f"{name:{wide}} measured before, on {record['date']}", flush=True)
        else:
            seconds = expected.of(name, its)
            about = f", about {seconds:.0f} s" if seconds else ""
            print(f"{name:{wide}} starts{about}", flush=True)
            room(args.out)
            started = time.perf_counter()
            log = args.out / "logs" / f"{name.replace('/', '_')}.log"
            # Without a GPU, starting Python anew would take a third of the whole time. (Forks are
            # for Linux: macOS' own libraries do not expect them.)
            forked = its.accelerator == "cpu" and sys.platform == "linux"
            devices = scripts.get(name).load().DEVICES
            wanted = its.devices or devices
            if its.accelerator == "cuda":
                wanted = min(wanted, torch.cuda.device_count())
            # Scripts with Fabric start their processes themselves.
            several = devices > 1 and (forked or scripts.get(name).plain)
            processes = wanted if several else None
            context = forks(PRELOADED) if forked else None
            record, last = run_script(name, options, log, processes, context)
            seconds = time.perf_counter() - started
            if not record:
                print(f"{name:{wide}} FAILED in {seconds:.0f} s: {last}", flush=True)
                failed.append(name)
                continue
            print(f"{name:{wide}} done in {seconds:.0f} s", flush=True)
            expected.took(name, its, seconds)
            record.update(seconds=seconds, fingerprint=mark, ladder=args.command)
            append(file, record)
        records.append(record)
    if records:
        print("- predicting the same, to compare", flush=True)
        predicted = predict(chosen, records)
        for group in by_model(records):
            print(f"\n{setting(group[0])}\n" + "\n".join(tables.measured(group, predicted)))
        bars.draw(records, args.out / "ladder.png")
        picture, logs = args.out / "ladder.png", args.out / "logs"
        print(f"\n{file}, {picture}: records and picture; {logs}: what the scripts printed")
    return failed


def main(argv=None):
    p = parser(__doc__.splitlines()[0], IMAGES, TEXTS)
    out = "folder for ladder.jsonl, ladder.png and logs/ (default: out)"
    fresh = "measure everything again, also what ladder.jsonl has already"
    add_stages(p)
    p.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help=out)
    p.add_argument("--fresh", action="store_true", help=fresh)
    args = p.parse_args(argv)
    args.command = command_of(["-m", "shared.ladder"], argv)
    names = selected(args)
    file = args.out / "ladder.jsonl"
    writable(file)
    replaceable(args.out / "ladder.png")
    with alone(args.out, args.command):
        going_on = "interrupted, the same command goes on from there"
        print(f"- records go to {file}; {going_on}", flush=True)
        chosen = choose(args, names)
        for note in dict.fromkeys(note for options in chosen.values() for note in options.notes):
            print(f"- {note}", flush=True)
        failed = measure(args, chosen)
    if failed:
        sys.exit(1)
