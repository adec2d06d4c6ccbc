"""Compares measurements on this computer's GPU with what was predicted, in pieces.

It trains with every script for a few updates on noise, from random weights; measures what single
operations allocate for themselves, and the size of the CUDA context; and runs the tests of the GPU.
What is measured is kept at once, in a file named after the GPU. The same command goes on where it
stopped. Without a GPU it does the same with the tiny preset, as a test of itself.
"""

import sys
import time
from pathlib import Path

import torch

from shared.cli import UserError
from shared.common import options
from shared.common.files import writable_folder
from shared.evidence.calibrate import packages, report
from shared.evidence.calibrate.pieces import Work, in_child
from shared.evidence.calibrate.store import Store
from shared.ladder.folder import alone
from shared.predict.jobs import supported_torch
from shared.records import scripts
from shared.records.machine import git_commit
from shared.records.record import RESULTS
from shared.records.units import aligned

MOST_OPERATIONS = 25  # in the last table; the file has all of them
NAMED = 5  # pieces that are left, by name


def parse(argv):
    """Parses the command line.

    Raises:
        UserError: an option is unknown, out of range, or does not suit this computer.
    """
    p = options.Parser(description=__doc__.splitlines()[0])
    which = "which, such as 06, 01-06,08 or 06_sgd/plain (default: all, and the tests of the GPU)"
    minutes = "begin nothing that would probably end after N minutes (default: 8)"
    out = "folder for logs and histories of allocations (default: out/calibrate)"
    results = "folder for what is measured (default: shared/evidence/results; without a GPU, --out)"
    preset = "default: full with a GPU, else tiny"
    p.add_argument("stages", nargs="*", metavar="STAGE", help=which)
    p.add_argument("--minutes", type=options.number, default=8, metavar="N", help=minutes)
    p.add_argument("--preset", choices=options.PRESETS, help=preset)
    p.add_argument("--out", type=Path, default=Path("out/calibrate"), metavar="DIR", help=out)
    p.add_argument("--results", type=Path, metavar="DIR", help=results)
    args = p.parse_args(argv)
    args.cuda = torch.cuda.is_available()
    args.preset = args.preset or ("full" if args.cuda else "tiny")
    if args.preset == "full" and not args.cuda:
        raise UserError("--preset full: there is no CUDA device here; the tiny preset needs none")
    args.names = scripts.select(args.stages, "stage") if args.stages else None
    published = args.cuda and args.preset == "full"
    args.results = args.results or (RESULTS if published else args.out)
    if args.results.resolve() == RESULTS.resolve() and not published:
        raise UserError("--results: shared/evidence/results is for GPUs and the full preset")
    args.command = "python -m shared.evidence.calibrate"  # whatever part of it is done at a time
    supported_torch()
    return args


def groups(names):
    """Returns the scripts in order of importance: lists of names.

    Args:
        names: those that were asked for; None for all.
    """
    ladder = scripts.ladder()
    texts = [name for name in scripts.stages() if name not in ladder]
    every = (ladder, texts, scripts.plain(), scripts.side_roads())
    return [[name for name in some if names is None or name in names] for some in every]


def pieces(work, names):
    """Yields the pieces that are not done yet, in order of importance."""
    for some in groups(names):
        yield from work.measurements(some)
        yield from work.predictions(some)
        yield from work.operations(some)
    if names is None:
        yield from work.tests()


def do(work, names, minutes):
    """Does pieces until the time is over.

    Args:
        work: pieces.Work.
        names: of the scripts that were asked for; None for all.
        minutes: no piece is begun that would probably end later. The first one is begun anyway.

    Returns:
        the names of the pieces that are left, about how many minutes they take, and {name of a
        piece: why it failed}.
    """
    started, over, left, failed, seconds = time.monotonic(), False, [], {}, 0.0
    for i, piece in enumerate(pieces(work, names)):
        begun = time.monotonic()
        over = over or i > 0 and begun - started + piece.seconds > 60 * minutes
        if over:
            left.append(piece.name)
            seconds += piece.seconds
            continue
        print(f"{piece.name:40} starts, about {piece.seconds:.0f} s", flush=True)
        why = piece.run()
        took = f"{time.monotonic() - begun:.0f} s"
        print(f"{piece.name:40} {f'FAILED: {why}' if why else 'done'} ({took})", flush=True)
        if why:
            failed[piece.name] = why
    return left, seconds / 60, failed


def show(store, names):
    """Prints what is known until now; returns the lines that sum it up."""
    wanted = [name for some in groups(names) for name in some]
    checked = [p for p in store.checked if p["script"] in wanted]
    checked.sort(key=lambda p: (p["world_size"], wanted.index(p["script"])))
    operations = store.about.get("operations", {})
    last = []
    if checked:
        print("\nPeaks while training, per device:\n")
        heading, *rows = report.trainings(checked)
        print("\n".join(aligned(heading, rows)))
        last.append(report.errors(checked))
    if operations:
        simulated = "" if "context" in store.about else ", on a simulated GPU, as a test"
        print(f"\nWhat operations allocate besides their results{simulated}:\n")
        pairs = report.compared(operations)
        heading, *rows = report.table(pairs[:MOST_OPERATIONS])
        print("\n".join(aligned(heading, rows)))
        if len(pairs) > MOST_OPERATIONS:
            print(f"and {len(pairs) - MOST_OPERATIONS} more, in {store.operations_file}")
        last.append(report.formulas(operations))
    for part, its in store.about.get("tests", {}).items():
        last.append(f"tests/long/test_cuda.py -k '{part}': {its['said']}")
    return last


def main(argv=None):
    args = parse(argv)
    for line in packages.lines():
        print(line, flush=True)
    writable_folder(args.out / "logs", "--out")
    writable_folder(args.results, "--results")
    with alone(args.out, args.command):
        card = None
        if args.cuda:
            card, why = in_child(args.out / "logs" / "context.json", [])
            if why:
                raise UserError(f"this GPU cannot be used: {why}")
            print(f"- {card['name']}: {report.context(card)}", flush=True)
        gpus = torch.cuda.device_count() if args.cuda else 0
        store = Store(args.results, card and card["name"])
        known = {"torch": torch.__version__, "git_commit": git_commit(), "preset": args.preset}
        if card:
            store.tell(context=card)
        store.tell(**known, command=args.command)
        print(f"- results go to {store.measured_file(1)}; logs to {args.out / 'logs'}", flush=True)
        work = Work(args.preset, args.out, args.command, card, gpus, store)
        left, minutes, failed = do(work, args.names, args.minutes)
        last = show(store, args.names)
    print()
    for name, why in work.left_out.items():
        print(f"- left out: {name}: {why}")
    if card:
        print(f"- {report.context(card)}")
    for line in last:
        print(f"- {line}")
    if left:
        more = f", and {len(left) - NAMED} more" if len(left) > NAMED else ""
        print(f"- left, about {minutes:.0f} minutes: {', '.join(left[:NAMED])}{more}")
        print("- the same command goes on")
    if failed:
        said = "; ".join(f"{name}: {why}" for name, why in failed.items())
        print(f"- FAILED: {said}")
        sys.exit(1)
