"""The command line of `python -m shared predict`: scripts of this repository, or of the user."""

import argparse
import sys

from emulated_gpu import cards
from shared.lab.predict import largest, selection
from shared.lab.records import scripts
from shared.run import cli
from shared.run.errors import UserError

DESCRIPTION = """\
Predict the GPU memory and the cost of training scripts, without a GPU.

SCRIPT is one of this repository, such as 06, 06_sgd/plain.py or 01-06; without any, all stages are
predicted. The path of a script of yours, and the options after it, go to emulated-gpu why.

Scripts run as they are, with PyTorch's own CUDA build, on a card that is not there: kernels do
nothing, and everything that decides about memory is PyTorch itself.
"""
USAGE = "python -m shared predict [SCRIPT ...] [option ...]"


def at_most(most):
    """Return a function that converts an option's text to an integer from 1 to `most`."""

    def number(text):
        if cli.positive(text) > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most:,}")
        return int(text)

    return number


def make_parser():
    """Return the parser of everything before --."""
    parser = cli.Parser(
        prog="python -m shared predict",
        usage=USAGE,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    which = "numbers, ranges, names; or the path of one script of yours"
    add("stages", nargs="*", metavar="SCRIPT", help=which)
    card = (
        f"the GPU: {', '.join(cards.CARDS)}, or an a100 with so many GB of 1e9 bytes (default: "
        "a100); if given, also what fits on it, with how much to spare"
    )
    devices = "GPUs, of scripts from 08 on (default: 4)"
    add("--card", type=cards.card_or_gb, metavar="NAME|GB", help=card)
    add("--devices", type=at_most(100_000), metavar="N", help=devices)
    add("--expandable", action="store_true", help="with PyTorch's expandable segments")
    add("--json", action="store_true", help="print a list of records instead of tables")
    positive, size = cli.positive, at_most(largest.MOST)
    beside = "add the side roads in their folders, other techniques, each with its parent"
    one_gpu = "the scripts for those who have one GPU: 01 to 07, then what they can do in place"
    one_by_one = "11: add the techniques to before.py one by one; with --devices 1, no sharding"
    preset = "default: full, ViT-L/16 at 224 px and DistilBERT at 512 tokens"
    model = "01 to 10: one of torchvision's vit_*; 11: a folder, or a Hugging Face id; or several"
    length = "cut texts off after N tokens (default: 512, or what the model takes)"
    code = "run the Python code that comes with some models; without this they are refused"
    add("--side-roads", "--all", action="store_true", help=beside)
    add("--one-gpu", action="store_true", help=f"{one_gpu} of 08")
    add("--plain", action="store_true", help="01 to 10: plain.py, without Fabric")
    add("--one-by-one", action="store_true", help=one_by_one)
    add("--preset", choices=cli.PRESETS, help=preset)
    add("--model", metavar="NAME[,NAME...]", help=f"{model} (default: the preset's)")
    add("--image-px", type=positive, metavar="N", help="edge of the images (default: the model's)")
    add("--max-length", type=positive, metavar="N", help=length)
    add("--trust-remote-code", action="store_true", help=code)
    add("--batch-size", type=size, metavar="N", help="per update (default: the script's)")
    add("--micro-batch-size", type=size, metavar="N", help="per device and pass, from 05 on")
    return parser


def parse(argv=None):
    """Parse the command line.

    Besides the options, the result has `command`, the command line; `card_gb`, the GB of the card;
    `names`, the scripts that the options apply to; `models`; and `fits`: whether to find out what
    fits on the card.

    Raises:
        UserError: an option is wrong.
    """
    argv = sys.argv[1:] if argv is None else argv
    args = make_parser().parse_args(argv)
    args.command = cli.command_of(["-m", "shared", "predict"], argv)
    args.stages = [name for text in args.stages for name in selection.resolve(text)]
    args.fits = args.card is not None
    if isinstance(args.card, float):
        args.card, args.card_gb = cards.DEFAULT, args.card
    else:
        args.card = args.card or cards.DEFAULT
        args.card_gb = args.card.gb
    _complete(args)
    return args


def _complete(args):
    """Check the options, and choose the scripts."""
    if args.one_gpu:
        if args.stages or args.side_roads:
            raise UserError("--one-gpu names the scripts; leave out the others and --side-roads")
        args.stages = [*scripts.ONE_GPU]
        # One of these scripts takes several GPUs by default.
        args.devices = 1
    args.preset = args.preset or "full"
    args.models = [None]  # the preset's
    if args.model is not None:
        if not all(args.model.split(",")):
            raise UserError(f"--model {args.model!r} has an empty name")
        args.models = [selection.model(name) for name in args.model.split(",")]
    if args.trust_remote_code:
        # To standard error, since with --json the rest is read by a program.
        print(f"- Python code that comes with {args.model} may run", file=sys.stderr)
    args.names = selection.suited(args)
