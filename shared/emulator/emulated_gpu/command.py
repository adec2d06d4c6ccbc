"""Run a PyTorch program, as it is, on GPUs that are not there, and report its memory.

PyTorch's own CUDA build runs, with its allocator, attention kernels' choice, FSDP and NCCL's host
side. Only kernels do nothing. Figures are emulated, not measured.
"""

import argparse
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from emulated_gpu import launch
from emulated_gpu.build import BuildError
from emulated_gpu.cards import CARDS, DEFAULT, get

KINDS = ("allocated", "active", "reserved")
WITH_VALUE = ("--card", "--devices", "--clock", "--snapshot", "--json")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"\nemulator: {message} (see --help)\n")


def devices(text):
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text} is not a number of devices")
    return int(text)


def microseconds(text):
    try:
        if 0 < float(text) <= 1e6:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text} is not a number of microseconds, such as {launch.LAUNCH}"
    )


def split(argv):
    """Return the emulator's own words, and those of the program, which begin with its name."""
    start = 0
    while start < len(argv) and argv[start].startswith("-") and argv[start] != "-m":
        start += 2 if argv[start] in WITH_VALUE else 1
    return argv[:start], argv[start:]


def parse(argv):
    p = Parser(
        prog="python -m emulated_gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="python -m emulated_gpu [OPTION...] SCRIPT|-m MODULE|PROGRAM [ITS OPTION...]",
    )
    card = f"the GPU: {', '.join(CARDS)} (default: a100)"
    p.add_argument("--card", type=get, default=DEFAULT, metavar="NAME", help=card)
    p.add_argument("--devices", type=devices, default=1, metavar="N", help="GPUs (default: 1)")
    alone = "one process, as rank 0 of --devices; the other ranks are taken to be copies of it"
    p.add_argument("--alone", action="store_true", help=alone)
    clock = (
        "give work the time that it takes on the card, and the host US microseconds to start each"
    )
    clock += f" piece (such as {launch.LAUNCH}): what FSDP1 and record_stream keep depends on it"
    p.add_argument("--clock", type=microseconds, default=0, metavar="US", help=clock)
    snapshot = "write the allocator's history, for pytorch.org/memory_viz; with several processes,"
    snapshot += " FILE.rank1 and so on"
    p.add_argument("--snapshot", metavar="FILE", help=snapshot)
    as_json = "write the reports: a list of processes, of each the peaks in bytes"
    p.add_argument("--json", metavar="FILE", help=as_json)
    own, program = split(sys.argv[1:] if argv is None else argv)
    args = p.parse_args(own)
    args.program = program
    if not args.program:
        p.error("name a script to run")
    if args.devices > 64 and not args.alone:
        p.error(f"--devices {args.devices}: at most 64 in processes of their own; --alone for more")
    first = args.program[0]
    if first == "-m" and len(args.program) > 1 or first.endswith(".py") and Path(first).is_file():
        args.program = [sys.executable, *args.program]
    elif not shutil.which(first):
        p.error(f"{first}: there is no such script or program")
    for option, file in (("--snapshot", args.snapshot), ("--json", args.json)):
        if file and not os.access(Path(file).resolve().parent, os.W_OK):
            p.error(f"{option} {file}: its folder does not exist, or is not writable")
    return args


def amount(size):
    """Return bytes as a text, in GB or MB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def table(reports):
    """Return the peaks of each process as lines."""
    rows = [["process", "GPU", *KINDS]]
    for report in reports:
        for gpu, peaks in report["peaks"].items():
            rows.append([f"rank {report['rank']}", gpu, *(amount(peaks[kind]) for kind in KINDS)])
    same = {tuple(row[2:]) for row in rows[1:]}
    if len(rows) > 2 and len(same) == 1:
        rows = [rows[0], [f"all {len(rows) - 1}", "each", *rows[1][2:]]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(text.rjust(w) for text, w in zip(row, widths)) for row in rows]


def notes(reports):
    """Return what the reader must know of the figures, as lines."""
    lines, names = {}, set()
    for report in reports:
        lines |= report["lines"]
        names.update(report["called"])
    if lines:
        yield "no kernel computed what these lines read; 1, true or the largest size stands for it:"
        yield from (f"  {line}  ({what})" for line, what in lines.items())
    if names:
        yield "functions that were called, of which only the name is known, or whose result is an"
        yield f"assumption: {', '.join(sorted(names))}"


def ended(code):
    """Return how the program ended, None if it succeeded."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" if code else None


def main(argv=None):
    args = parse(argv)
    try:
        variables = launch.environment(args.card, args.devices, clock=args.clock, alone=args.alone)
    except BuildError as error:
        print(f"\nemulator: {error}", file=sys.stderr)
        return 2
    code, reports = launch.run(args.program, variables, args.snapshot)
    if args.json:
        Path(args.json).write_text(json.dumps(reports))
    count = f"{args.devices} x " if args.devices > 1 else ""
    alone = ", rank 0 alone" if args.alone else ""
    print(f"\nemulated {count}{args.card.title}{alone}, peaks:", file=sys.stderr)
    if not reports:
        print("nothing was allocated on a GPU", file=sys.stderr)
    for line in [*table(reports), *notes(reports)] if reports else ():
        print(line, file=sys.stderr)
    if problem := ended(code):
        print(f"the program {problem}", file=sys.stderr)
    return 128 - code if code < 0 else code
