"""Find out why a training script needs so much GPU memory, without a GPU.

The script runs unedited, on a card that is not there, until it has made a few updates; then it is
ended. What it would download and is missing is replaced, and the answer says by what. Its own code
runs, so name no script that you would not run yourself.

  emulated-gpu why train.py                                what holds the memory, and where?
  emulated-gpu why train.py --card l4 -- --batch-size 8    does it fit on this card?
  emulated-gpu why --max-gb 20 -m package.train            exit code 3 if it needs more
  emulated-gpu why train.py --html why.html                a page to attach to an issue

Or paste the error that you have: PyTorch's message, a whole traceback, or a log. Nothing runs then.

  emulated-gpu why --error log.txt                         what its numbers mean, what to try
  emulated-gpu why --error -                               the same, from standard input
"""

import argparse
import json
import sys
from pathlib import Path

from emulated_gpu import options
from emulated_gpu.texts import Parser, UserError
from emulated_gpu.why import fit, message, runs

UPDATES = 3
LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "python", "python3"}
USAGE = "emulated-gpu why [OPTION...] SCRIPT|-m MODULE [OPTION...] [-- OPTION OF SCRIPT...]"
USAGE += "\n       emulated-gpu why --error FILE|-"


def shape(text):
    """Return the text of a shape such as 3x224x224."""
    if not all(part.isdecimal() and int(part) for part in text.split("x")):
        raise argparse.ArgumentTypeError(f"{text} is not a shape such as 3x224x224")
    return text


def make_parser():
    """Return the parser of everything before --."""
    parser = Parser(
        prog="emulated-gpu why",
        usage=USAGE,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("script", nargs="?", type=Path, help="the script's path")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="a module in place of a script")
    ranks = "GPUs of a script that torchrun starts: it runs as rank 0, and as the last rank"
    options.add_shared(parser, ranks, "write the answer as JSON")
    add = parser.add_argument
    updates = f"of the script to watch (default: {UPDATES})"
    error = "a file with an error message or a log, or - for standard input, in place of a script"
    images = "of the images in place of a data set that is missing, such as 3x224x224"
    add("--updates", type=options.devices, default=UPDATES, metavar="N", help=updates)
    add("--error", metavar="FILE", help=error)
    add("--input", type=shape, metavar="SHAPE", help=images)
    add("--details", action="store_true", help="print all notes, and those on libraries")
    add("--html", type=options.new_file, metavar="FILE", help="write a page with the timeline")
    return parser


def parse(argv):
    """Return the options; `arguments` are those of the script, `card_gb` the GB of the card."""
    end = argv.index("--") if "--" in argv else len(argv)
    started = LAUNCHERS & {*argv[:end]}
    parser = make_parser()
    args, unknown = parser.parse_known_args(argv[:end])
    if started:
        parser.error(f"{started.pop()}: name the script itself; --devices N stands for torchrun")
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}; those of a script go after --")
    args.arguments = argv[end + 1 :]
    if args.error:
        if args.script or args.module or args.arguments:
            parser.error("--error reads a message in place of a script: name one of them")
        return args
    args.card, args.card_gb = options.card_of(args)
    if (args.script is None) == (args.module is None):
        parser.error("name one script, such as train.py, or one module with -m")
    if args.module:
        args.script = Path(args.module)
    elif args.script.suffix == ".ipynb":
        text = f"{args.script} is a notebook; jupyter nbconvert --to script makes a script of it"
        parser.error(text)
    elif not args.script.is_file():
        parser.error(f"there is no script {args.script}")
    return args


def main(argv):
    """Run the command; return the exit code."""
    args = parse(argv)
    try:
        if args.error:
            print("\n".join(message.lines(message.text_of(args.error))))
            return 0
        answer = runs.ask(args)
    except UserError as error:
        print(f"\nemulated-gpu: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nemulated-gpu: interrupted", file=sys.stderr)
        return 130
    print("\n" + "\n".join(answer.text))
    needs = fit.needs(answer.record)
    is_too_much = bool(args.max_gb) and needs > args.max_gb
    if is_too_much:
        print(f"That is {needs - args.max_gb:.2f} GB more than --max-gb {args.max_gb:g}")
    files = {args.json: json.dumps({**answer.record, "answer": answer.text}, indent=1)}
    if args.html:
        from emulated_gpu.why import page  # which imports PyTorch, for more than a second

        files[args.html] = page.made(answer)
    for file, text in files.items():
        try:
            if file:
                file.write_text(text, "utf-8")
        except OSError as error:  # such as of a full disk
            print(f"\nemulated-gpu: {file}: {error.strerror}", file=sys.stderr)
            return 2
    if answer.interrupted:
        print("\nemulated-gpu: interrupted", file=sys.stderr)
        return 130
    return options.TOO_MUCH if is_too_much else 0
