"""Predicts what every script needs of a GPU, without one.

Its own code runs, on tensors that have no memory.
"""

import dataclasses
import json
import sys

import torch

from shared import cli as options
from shared.cli import UserError
from shared.images.cli import TASK as IMAGES
from shared.predict import card_fit, cards, tables, timeline
from shared.predict.allocator import GROW, VARIABLE
from shared.predict.jobs import Wanted, one_by_one, run_jobs
from shared.predict.simulation import predict, predict_moments
from shared.records import scripts
from shared.records.views import by_model, setting
from shared.text.cli import TASK as TEXTS
from shared.text.cli import add_model_options


def make_parser():
    parser = options.Parser(description=__doc__)
    add, positive = parser.add_argument, options.positive
    models = f"01 to 10: {IMAGES.model_help}; 11: {TEXTS.model_help}, or several"
    card = f"the GPU: {', '.join(cards.CARDS)} (default: a100), and which way leads to this card"
    version = "whose PyTorch's workspaces, such as 2.11 (default: the installed one's)"
    fits = "which scripts fit on a card of so many GB (1e9 bytes), or on a card, and how much"
    preset = "default: full, ViT-L/16 at 224 px and DistilBERT at 512 tokens"
    one = "11: apply the techniques one by one, from before.py on; with --devices 1 no sharding"
    scripts.add_stages(parser)
    add("--preset", choices=options.PRESETS, default="full", help=preset)
    add("--model", metavar="NAME[,NAME...]", help=f"{models} (default: the preset's)")
    add("--image-px", type=positive, metavar="N", help="edge of the images (default: the model's)")
    add_model_options(parser)
    add("--batch-size", type=positive, metavar="N", help="per update (default: the script's)")
    add("--micro-batch-size", type=positive, metavar="N", help="per device and pass, from 05 on")
    add("--devices", type=positive, metavar="N", help="GPUs, from 08 on (default: 4)")
    add("--one-by-one", action="store_true", help=one)
    add("--plain", action="store_true", help="plain.py, without Fabric, not train.py; 01 to 10")
    add("--on", choices=("gpu", "cpu"), default="gpu", help="a GPU, or a computer without one")
    add("--card", type=cards.get, metavar="NAME", help=card)
    add("--torch", type=cards.version, default=cards.INSTALLED, metavar="VERSION", help=version)
    add("--expandable", action="store_true", help=f"as with {VARIABLE}={GROW}")
    add("--tensors-only", action="store_true", help="no workspaces, and no rests of blocks")
    other = parser.add_mutually_exclusive_group().add_argument
    other("--fits", type=cards.card_or_gb, metavar="GB|CARD", help=fits)
    other("--timeline", type=options.location, metavar="DIR", help="draw who holds memory")
    add("--json", action="store_true", help="print a list of records instead of tables")
    return parser


def parse(argv):
    """Parses the command line; fills in args.names, the scripts that the options are about."""
    args = make_parser().parse_args(argv)
    args.command = options.command_of(["-m", "shared.predict"], argv)
    # With these, --card does not tell which way leads to it.
    others = args.fits or args.timeline or args.one_by_one
    args.ways = args.card and not (others or args.tensors_only)
    if isinstance(args.fits, cards.Card):
        args.card, args.fits = args.fits, args.fits.gb
    if args.trust_remote_code:
        print(f"- Python code that comes with {args.model} may run", file=sys.stderr)
    args.models = args.model.split(",") if args.model else [None]  # None is the preset's
    named = scripts.selected(args)
    chosen = scripts.plain(named) if args.plain else named or scripts.stages()
    chosen = scripts.with_side_roads(chosen) if args.side_roads else chosen
    units = {name: scripts.get(name).load().TASK.unit for name in chosen}
    about = {IMAGES if m.startswith("vit_") else TEXTS for m in args.models if m}
    about -= {TEXTS} if named else set()  # perhaps it is of pictures; the scripts know better
    about |= {IMAGES} if args.image_px else set()
    about |= {TEXTS} if args.max_length or args.one_by_one else set()
    others = [name for name in chosen if any(units[name] != task.unit for task in about)]
    args.names = [name for name in chosen if name not in others]
    if others and named or not args.names:
        unit = "texts" if units[others[0]] == "images" else "images"
        raise UserError(f"an option is about {unit}, but {others[0]} is about {units[others[0]]}")
    return args


def wanted(args, **changed):
    """Returns what to simulate, as the options say but for some fields: [(script, Wanted), ...]."""
    given = {f.name for f in dataclasses.fields(Wanted)} & vars(args).keys()
    same = {name: getattr(args, name) for name in given} | changed
    found = []
    for model in args.models:
        for name in args.names:
            steps = [None]
            if args.one_by_one:  # the techniques lead from the folder's first script to its last
                devices = same["devices"] or scripts.get(name).load().DEVICES
                every = one_by_one(name).techniques(devices)
                firsts = [every[:n] for n in range(len(every) + 1)]
                steps = firsts if name.endswith("/train") else []
            its = {**same, "model": model}
            found += [(name, Wanted(**{**its, "techniques": chosen})) for chosen in steps]
    return found


def main(argv=None):
    args = parse(argv)
    probed = cards.probe() if args.on == "cpu" else None
    simulations = wanted(args, device=args.on, rates=probed)
    if args.fits:
        records = run_jobs([(card_fit.with_fits, *job, args.fits) for job in simulations])
    elif args.ways:
        records = card_fit.find(simulations, args.card)
    elif args.timeline:
        drawn = run_jobs([(predict_moments, *job) for job in simulations])
        timeline.draw_all(drawn, args.timeline)
        records = [moments["record"] for moments in drawn]
    else:
        records = run_jobs([(predict, *job) for job in simulations])
    records = [{**r, "command": args.command} for r in records]
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        show(records, args)
    return records


def show_tables(records, args, how=""):
    """Prints the tables of predictions of one model."""
    r = records[0]
    if args.torch != cards.INSTALLED:
        how += f"as with torch {r['as_torch']}, "
    how += f"predicted with torch {torch.__version__}; nothing was computed"
    print(f"\n{setting(r)}, on a {r['device']}, {how}. Figures are per device.\n")
    print("\n".join([*tables.predictions(records), "", *tables.costs(records)]))
    if args.card and not args.card.bf16:
        print(f"\nA {args.card.title} has no instructions for bf16: it is slow there.")


def show(records, args):
    """Prints the tables of predictions, those of each model together."""
    how = "tensors only, " * args.tensors_only + "with expandable segments, " * args.expandable
    for group in by_model(records):
        show_tables(group, args, how)
        if args.fits:
            print("\n" + "\n".join(tables.fitting(group)))
        if args.ways:
            print("\n" + "\n".join(card_fit.table(group, args.card)))
    if args.timeline:
        print(f"\n{args.timeline}: who holds the memory during one update")
