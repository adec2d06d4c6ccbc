"""Run a PyTorch program, unedited, on NVIDIA GPUs that are not there; report the memory it needs.

PyTorch's own CUDA build runs, with its allocator, its choice of attention kernels, FSDP and DDP.
Kernels do nothing, so numbers such as losses mean nothing. It needs Linux, a CUDA build of PyTorch
and a C compiler; the first run compiles for some seconds.

  emulated-gpu why train.py                                what holds the memory: why --help
  emulated-gpu run --card rtx3090 train.py --batch-size 8  does it fit on this card?
  emulated-gpu run --max-gb 20 train.py                    exit code 3 if it needs more
  emulated-gpu run --devices 4 torchrun --nproc-per-node 4 train.py
  emulated-gpu run --devices 512 --alone train.py          rank 0 of 512
  emulated-gpu compare --python OLD --python NEW train.py  what grew: compare --help
  emulated-gpu cards                                       the cards
"run" may be left out.
"""

import argparse
import json
import shutil
import signal
import sys
from importlib import metadata
from pathlib import Path

from emulated_gpu import compare, launch, options, programs
from emulated_gpu.build import BuildError
from emulated_gpu.cards import CARDS, groups
from emulated_gpu.texts import KINDS, Parser, amount, columns

# Options that take the next word. split() has to know them before argparse does.
WITH_VALUE = ("--card", "--devices", "--host", "--max-gb", "--snapshot", "--trace", "--json")
ALONE = "run one process, as rank 0 of --devices, which may be thousands; the other ranks count as "
ALONE += "copies of it"
HOST = "the microseconds that the host takes to start a kernel (default: "
HOST += f"{launch.HOST_US}). The memory of FSDP1 and of Tensor.record_stream() depends on it"
TRACE = "write when the GPU is at work, for https://ui.perfetto.dev: gaps are where it waits"
VERSION = "print the versions of this package and of PyTorch, as far as they are installed"


def split(argv):
    """Return the emulator's options, and the words of the program, which begin with its name.

    argparse would take options of the program for the emulator's, wherever they stand.
    """
    start = 0
    # -m is Python's option, with which the program begins.
    while start < len(argv) and argv[start].startswith("-") and argv[start] != "-m":
        start += 2 if argv[start] in WITH_VALUE else 1
    return argv[:start], argv[start:]


def make_parser():
    """Return the parser of the emulator's options."""
    p = Parser(
        prog="emulated-gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # split() would take the value of a shortened option for the program.
        allow_abbrev=False,
        usage="emulated-gpu [run] [OPTION...] SCRIPT|-m MODULE|PROGRAM [OPTION OF THE PROGRAM...]",
    )

    report = "write the report as JSON: a list of processes, with their peaks in bytes"
    options.add_shared(p, "the number of GPUs (default: 1)", report)
    microseconds = options.number("microseconds", launch.HOST_US)
    p.add_argument("--alone", action="store_true", help=ALONE)
    p.add_argument("--host", type=microseconds, default=launch.HOST_US, metavar="US", help=HOST)
    p.add_argument("--trace", type=options.new_file, metavar="FILE", help=TRACE)
    # Not from PyTorch itself, whose import takes seconds.
    found = (d for name in ("emulated-gpu", "torch") for d in metadata.distributions(name=name))
    installed = ", ".join(f"{d.name} {d.version}" for d in found)
    p.add_argument("--version", action="version", version=installed, help=VERSION)
    return p


def parse(argv):
    """Return the options; `program` has the words of the command to run."""
    p = make_parser()
    words, program = split(argv)
    args = p.parse_args(words)
    args.devices = args.devices or 1
    args.card, args.card_gb = options.card_of(args)
    if not program:
        p.error("name a script to run")
    if program == ["-m"]:
        p.error("-m: name a module to run")
    if args.devices > launch.MOST and not args.alone:
        p.error(f"--devices {args.devices}: at most {launch.MOST} without --alone")
    # A script runs under this Python; a program, such as torchrun, finds its own.
    first = program[0]
    # Without such a file, it may be a program that can be found, with .py in its name.
    is_script = first.endswith(".py") and Path(first).is_file()
    if first == "-m" or is_script:
        program = [sys.executable, *program]
    elif not shutil.which(first):
        p.error(f"{first}: there is no such script or program")
    args.program = program
    return args


def table(reports):
    """Return the peaks of each process as lines; equal ones as one line for all."""
    rows = [["process", "GPU", *KINDS]]
    for report in reports:
        for gpu, peaks in report["peaks"].items():
            rows.append([f"rank {report['rank']}", gpu, *(amount(peaks[kind]) for kind in KINDS)])
    # Ranks of data-parallel training need the same: one line instead of 64.
    different = {tuple(row[2:]) for row in rows[1:]}
    if len(rows) > 2 and len(different) == 1:
        rows = [rows[0], [f"all {len(rows) - 1}", "each", *rows[1][2:]]]
    return columns(rows)


def notes(reports):
    """Yield lines on the limits of the figures: assumptions, the host's pace, a lack of memory."""
    lines, stand_ins = {}, {}
    names = set()
    kept = {}  # in order, each once
    for report in reports:
        lines |= report["lines"]
        stand_ins |= report["stand_ins"]
        names.update(report["called"])
        kept |= dict.fromkeys(report["kept"])
    yield from (f"{line} {text}" for text, line in stand_ins.items())
    if lines:
        yield "no kernel computed what these lines read; 1, true or the largest size stands for it:"
        yield from (f"  {line}  ({what})" for line, what in lines.items())
    if names:
        yield "functions that were called, of which only the name is known, or whose result is an"
        yield f"assumption: {', '.join(sorted(names))}"
    if kept:
        fast, slow = launch.BOUNDS_US
        yield (
            "reserved memory can depend on the host's pace, since blocks wait for other streams: "
            f"{', '.join(kept)}; --host {fast} and --host {slow} show the bounds"
        )
    most = max(report["groups"] for report in reports)
    if most > 1:
        yield groups(most)
    retries, errors = (sum(report[name] for report in reports) for name in ("retries", "errors"))
    if retries:
        yield f"PyTorch gave its cache back to make room, which takes time: {times(retries)}"
    if errors:
        yield f"allocations failed with an out-of-memory error: {times(errors)}"


def times(count):
    """Return a number of events in words."""
    return "once" if count == 1 else f"{count} times"


def ended(code):
    """Return in words how the program ended, None if it succeeded."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" if code else None


def list_cards(words):
    """Print the cards that can be emulated; return the exit code. It takes no words."""
    Parser(prog="emulated-gpu cards", description="List the GPUs of --card.").parse_args(words)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # cards | head
    rows = [("name", "card", "GB", "capability")]
    for name, card in CARDS.items():
        rows.append((name, card.title, f"{card.gb:.2f}", ".".join(map(str, card.capability))))
    print("\n".join(columns(rows)))
    return 0


def main(argv=None):
    """Run the command.

    Returns:
        The exit code: the program's, 128 more than its signal, 2 for a mistake, or TOO_MUCH.
    """
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["cards"]:
        return list_cards(words[1:])
    if words[:1] == ["compare"]:
        return compare.main(words[1:])
    if words[:1] == ["why"]:
        from emulated_gpu.why import command  # with modules that a run does not need

        return command.main(words[1:])
    return run(parse(words[1:] if words[:1] == ["run"] else words))


def run(args):
    """Run a program as parse() has returned it, and report; return main()'s exit code."""
    try:
        how = {"host_us": args.host, "alone": args.alone, "memory_gb": args.card_gb}
        variables = launch.environment(args.card, args.devices, **how)
    except BuildError as error:
        print(f"\nemulated-gpu: {error}", file=sys.stderr)
        return 2
    # The report goes to standard error, so that the program's output can be piped.
    wrong = None
    try:
        code, reports = launch.run(args.program, variables, args.snapshot, args.trace)
    except launch.EmulatorError as error:
        wrong, code, reports = error, error.code, error.reports
    count = f"{args.devices} x " if args.devices > 1 else ""
    alone = ", rank 0 alone" if args.alone else ""
    if reports or not wrong:
        print(f"\nemulated {count}{args.card.title}{alone}, peaks:", file=sys.stderr)
    if not reports and not wrong:
        print("nothing was allocated on a GPU", file=sys.stderr)
    for line in [*table(reports), *notes(reports)] if reports else ():
        print(line, file=sys.stderr)
    if problem := ended(code):
        print(f"the program {problem}", file=sys.stderr)
    # Last, since the report must not be lost with a full disk.
    if args.json:
        try:
            args.json.write_text(json.dumps(reports))
        except OSError as error:
            print(f"\nemulated-gpu: --json {args.json}: {error.strerror}", file=sys.stderr)
            return 2
    if wrong:
        print(f"\nemulated-gpu: {wrong}", file=sys.stderr)
        return 2
    needs = programs.needs_gb(reports, args.devices)
    if args.max_gb:
        more = f", {needs - args.max_gb:.2f} more than --max-gb {args.max_gb:g}"
        print(f"a card needs {needs:.2f} GB{more * (needs > args.max_gb)}", file=sys.stderr)
    if not code and args.max_gb and needs > args.max_gb:
        return options.TOO_MUCH
    return 128 - code if code < 0 else code
