"""Predict the GPU memory and the cost of every script, without a GPU.

Each script runs as it is, with PyTorch's own CUDA build, on a card that is not there: kernels do
nothing, and everything that decides about memory is PyTorch itself.
"""

import dataclasses
import json
import sys

import torch

from emulated_gpu import cards
from shared import cli as options
from shared.cli import UserError
from shared.images.cli import TASK as IMAGES
from shared.lab.predict import card_fit, tables, timeline
from shared.lab.predict.jobs import Failed, Wanted, one_by_one, run_jobs
from shared.lab.predict.stage import predict, predict_moments
from shared.lab.records import scripts
from shared.lab.records.reading import by_model
from shared.text.cli import TASK as TEXTS
from shared.text.cli import add_model_options

# Side roads that a search for what fits on a card tries besides the stages.
WAYS = "08_fsdp/ddp", "09_act_ckpt/one_gpu"


def make_parser():
    parser = options.Parser(description=__doc__)
    add, positive = parser.add_argument, options.positive
    models = f"01 to 10: {IMAGES.model_help}; 11: {TEXTS.model_help}, or several"
    card = f"the GPU: {', '.join(cards.CARDS)} (default: a100); if given, list what fits on it"
    fits = "which scripts fit on a card (its name, or GB of 1e9 bytes), with how much at once"
    preset = "default: full, ViT-L/16 at 224 px and DistilBERT at 512 tokens"
    one = "11: add the techniques to before.py one by one; with --devices 1, no sharding"
    scripts.add_stages(parser)
    add("--preset", choices=options.PRESETS, default="full", help=preset)
    add("--model", metavar="NAME[,NAME...]", help=f"{models} (default: the preset's)")
    add("--image-px", type=positive, metavar="N", help="edge of the images (default: the model's)")
    add_model_options(parser)
    add("--batch-size", type=positive, metavar="N", help="per update (default: the script's)")
    add("--micro-batch-size", type=positive, metavar="N", help="per device and pass, from 05 on")
    add("--devices", type=positive, metavar="N", help="GPUs, from 08 on (default: 4)")
    add("--one-by-one", action="store_true", help=one)
    add("--plain", action="store_true", help="01 to 10: plain.py, without Fabric")
    add("--card", type=cards.get, metavar="NAME", help=card)
    add("--expandable", action="store_true", help="with PyTorch's expandable segments")
    other = parser.add_mutually_exclusive_group().add_argument
    other("--fits", type=cards.card_or_gb, metavar="GB|CARD", help=fits)
    other("--timeline", type=options.location, metavar="DIR", help="draw what holds memory")
    add("--json", action="store_true", help="print a list of records instead of tables")
    return parser


def parse(argv):
    """Parse the command line, and set args.names: the scripts that the options apply to."""
    args = make_parser().parse_args(argv)
    args.command = options.command_of(["-m", "shared", "predict"], argv)
    # Whether to search for configurations that fit on the card.
    args.ways = args.card and not (args.fits or args.timeline or args.one_by_one)
    if isinstance(args.fits, cards.Card):
        args.card, args.fits = args.fits, args.fits.gb
    args.card = args.card or cards.DEFAULT
    if args.trust_remote_code:
        print(f"- Python code that comes with {args.model} may run", file=sys.stderr)
    args.models = args.model.split(",") if args.model else [None]  # None is the preset's
    args.names = suited(args)
    return args


def suited(args):
    """Return the selected scripts that the options apply to.

    Raises:
        UserError: an option is for images, but a named script trains on texts, or the reverse.
    """
    named = scripts.selected(args)
    default = [*scripts.stages(), *(WAYS if args.ways else ())]
    chosen = scripts.plain(named) if args.plain else named or default
    if args.side_roads:
        chosen = scripts.with_side_roads(chosen)
    of_images = [model.startswith("vit_") for model in args.models if model]
    units = set()  # what the options are for
    if args.image_px or any(of_images):
        units.add(IMAGES.unit)
    if args.max_length or args.one_by_one:
        units.add(TEXTS.unit)
    if not named and not all(of_images):  # a named script may take such a model for images
        units.add(TEXTS.unit)
    own = {name: scripts.get(name).load().TASK.unit for name in chosen}
    unsuited = [name for name in chosen if units - {own[name]}]
    if unsuited and (named or len(unsuited) == len(chosen)):
        first = unsuited[0]
        unit = (units - {own[first]}).pop()
        raise UserError(f"an option is for {unit}, but {first} trains on {own[first]}")
    return [name for name in chosen if name not in unsuited]


def wanted(args):
    """Return the runs that options ask for: [(script, Wanted), ...]."""
    runs = []
    for model in args.models:
        settings = Wanted(
            preset=args.preset,
            model=model,
            image_px=args.image_px,
            max_length=args.max_length,
            batch_size=args.batch_size,
            micro_batch_size=args.micro_batch_size,
            devices=args.devices,
            trust_remote_code=args.trust_remote_code,
            card=args.card,
            expandable=args.expandable,
        )
        for name in args.names:
            if not args.one_by_one:
                runs.append((name, settings))
            elif name.endswith("/train"):  # from the first script of the folder to the last
                devices = args.devices or scripts.get(name).load().DEVICES
                techniques = one_by_one(name).techniques(devices)
                for n in range(len(techniques) + 1):
                    runs.append((name, dataclasses.replace(settings, techniques=techniques[:n])))
    return runs


def main(argv=None):
    args = parse(argv)
    runs, failed = wanted(args), None
    if args.fits:
        records = card_fit.fits(runs, args.fits)
    elif args.ways:
        records = card_fit.find(runs, args.card)
    elif args.timeline:
        drawn, failed = completed([(predict_moments, *run) for run in runs])
        timeline.draw_all(drawn, args.timeline)
        records = [moments["record"] for moments in drawn]
    else:
        records, failed = completed([(predict, *run) for run in runs])
    records = [{**r, "command": args.command} for r in records]
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        show(records, args)
    if failed:
        raise failed
    return records


def completed(jobs):
    """Run jobs; return the results of those that did not fail, and a Failed, or None.

    Raises:
        Failed: all of them failed.
    """
    try:
        return run_jobs(jobs), None
    except Failed as failed:
        if not failed.completed:
            raise
        return failed.completed, failed


def show(records, args):
    """Print the tables of predictions, grouped by model."""
    how = "with expandable segments, " if args.expandable else ""
    how += f"with torch {torch.__version__}; kernels did nothing"
    for group in by_model(records):
        tables.show(group, args.card, how)
        if args.fits:
            print("\n" + "\n".join(tables.fitting(group)))
        if args.ways:
            print("\n" + "\n".join(card_fit.table(group, args.card)))
    if args.timeline:
        print(f"\n{args.timeline}: what holds the memory during one update")
