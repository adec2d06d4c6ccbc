"""Predicts what every script needs of a GPU, without one.

Its own code runs, on tensors that have no memory.
"""

import dataclasses
import json
import sys
from pathlib import Path

import torch

from shared import cli as options
from shared.cli import UserError
from shared.images.cli import TASK as IMAGES
from shared.predict import cards, rates, tables, timeline, way
from shared.predict.check import check
from shared.predict.fits import with_fits
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.simulation import one_by_one, predict
from shared.records import scripts
from shared.records.views import by_model, setting
from shared.text.cli import TASK as TEXTS
from shared.text.cli import add_model_options


def make_parser():
    """Returns the parser of the command line."""
    parser = options.Parser(description=__doc__)
    add, positive = parser.add_argument, options.positive
    models = f"01 to 10: {IMAGES.model_help}; 11: {TEXTS.model_help}, or several"
    fits = (
        "tell which scripts fit on a card of so many GB (1e9 bytes), or on a card such as l4, by "
        "what is reserved and an allowance for what is not simulated, and with what micro-batch"
    )
    card = (
        f"the GPU: {', '.join(cards.CARDS)} (default: {cards.DEFAULT}); given, it also tells which "
        "way leads to this card: what fits, with how much at once, and what of it is the fastest"
    )
    version = "whose PyTorch's workspaces, such as 2.11 (default: the installed one's)"
    only = "count tensors alone: no workspaces, and allocated without the rests of blocks"
    late = "what if zero_grad() came between forward and backward pass, as in 2023; 01 to 04"
    run = "run the scripts as they are, too, a few updates each on noise, and compare; on a GPU if "
    preset = "default: full, ViT-L/16 at 224 px and DistilBERT at 512 tokens"
    micro = "images or texts per forward pass and device, from 05 on (default: the script's)"
    batch = "images or texts per update (default: the script's)"
    on = "predict for a GPU (default), or for a computer without one, as the tests do"
    one = "11: apply the techniques one by one, from before.py on; with --devices 1 no sharding"
    plain = "the scripts in plain PyTorch, plain.py, instead of train.py; 01 to 10"
    pictures = "draw who holds the memory during one update, into DIR"
    scripts.add_stages(parser)
    add("--preset", choices=options.PRESETS, default="full", help=preset)
    add("--model", metavar="NAME[,NAME...]", help=f"{models} (default: the preset's)")
    add("--image-px", type=positive, metavar="N", help="edge of the images (default: the model's)")
    add_model_options(parser)
    add("--batch-size", type=positive, metavar="N", help=batch)
    add("--micro-batch-size", type=positive, metavar="N", help=micro)
    add("--devices", type=positive, metavar="N", help="GPUs, from 08 on (default: 4)")
    add("--one-by-one", action="store_true", help=one)
    add("--plain", action="store_true", help=plain)
    add("--on", choices=("gpu", "cpu"), default="gpu", help=on)
    add("--late-zero-grad", action="store_true", help=late)
    add("--card", type=cards.get, metavar="NAME", help=card)
    add("--torch", type=cards.version, default=cards.INSTALLED, metavar="VERSION", help=version)
    add("--tensors-only", action="store_true", help=only)
    other = parser.add_mutually_exclusive_group().add_argument
    other("--fits", type=cards.card_or_gb, metavar="GB|CARD", help=fits)
    other("--timeline", type=Path, metavar="DIR", help=pictures)
    other("--check", action="store_true", help=f"{run}there is one. They need what is predicted")
    add("--json", action="store_true", help="print a list of records instead of tables")
    return parser


def parse(argv):
    """Parses the command line.

    Raises:
        UserError: an option is unknown, out of range, or not about the scripts that are named.
    """
    args = make_parser().parse_args(argv)
    args.command = options.command_of(["-m", "shared.predict"], argv)
    # With these, --card does not tell which way leads to it.
    others = args.fits or args.timeline or args.one_by_one or args.late_zero_grad
    args.ways = args.card and not (others or args.tensors_only)
    if isinstance(args.fits, cards.Card):
        args.card, args.fits = args.fits, args.fits.gb
    args.models = args.model.split(",") if args.model else [None]  # None is the preset's
    choose(args)
    return args


def choose(args):
    """Fills in args.names, the scripts to simulate: by default all that the options are about.

    Raises:
        UserError: an option is about images, and a script about texts, or the other way round.
    """
    named = scripts.selected(args)
    chosen = scripts.plain(named) if args.plain else named or scripts.stages()
    chosen = scripts.with_side_roads(chosen) if args.side_roads else chosen
    about = {name: scripts.get(name).load().TASK.unit for name in chosen}
    given = [(IMAGES if m.startswith("vit_") else TEXTS, f"--model {m}") for m in args.models if m]
    given += [(IMAGES, f"--image-px {args.image_px}")] if args.image_px else []
    given += [(TEXTS, f"--max-length {args.max_length}")] if args.max_length else []
    given += [(TEXTS, "--one-by-one")] if args.one_by_one else []
    for task, option in given:
        others = [name for name in chosen if about[name] != task.unit]
        chosen = [name for name in chosen if name not in others]
        if others and named or not chosen:
            its = about[others[0]]
            raise UserError(f"{option} is about {task.unit}, but {others[0]} is about {its}")
    args.names = chosen


def wanted(args, **changed):
    """Returns what to simulate: a list of (script's name, Wanted).

    Args:
        args: from parse().
        changed: fields of Wanted that are not as in args.
    """
    given = {f.name for f in dataclasses.fields(Wanted)} & vars(args).keys()
    same = {name: getattr(args, name) for name in given}
    found = []
    for model in args.models:
        for name in args.names:
            steps = [None]
            if args.one_by_one:  # the techniques lead from the folder's first script to its last
                devices = changed.get("devices") or args.devices or scripts.get(name).load().DEVICES
                every = one_by_one(name).techniques(devices)
                firsts = [every[:n] for n in range(len(every) + 1)]
                steps = firsts if name.endswith("/train") else []
            for chosen in steps:
                its = {**same, "model": model, "techniques": chosen, **changed}
                found.append((name, Wanted(**its)))
    return found


def run_check(args):
    """Does what --check says, and ends with exit code 1 if a prediction is too far off."""
    changed = {"device": "cpu"}
    if torch.cuda.is_available():
        changed = {"device": "gpu"}
        changed["card"] = cards.of_this_machine(torch.cuda.get_device_properties(0))
        if not args.devices:  # as the scripts choose it
            changed["devices"] = max(n for n in (1, 2, 4) if n <= torch.cuda.device_count())
    sys.exit(not check(args, [(predict, *job) for job in wanted(args, **changed)]))


def main(argv=None):
    args = parse(argv)
    if args.check:
        run_check(args)
    probed = rates.probe() if args.on == "cpu" else None
    simulations = wanted(args, device=args.on, rates=probed)
    if args.fits:
        records = run_jobs([(with_fits, *job, args.fits) for job in simulations])
    elif args.ways:
        records = way.find(simulations, args.card)
    elif args.timeline:
        drawn = run_jobs([(predict, *job, True) for job in simulations])
        timeline.draw_all(drawn, args.timeline)
        records = [record for record, _ in drawn]
    else:
        records = run_jobs([(predict, *job) for job in simulations])
    records = [{**r, "command": args.command} for r in records]
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        show(records, args)
    return records


def show(records, args):
    """Prints the tables of predictions, those of each model together."""
    for group in by_model(records):
        r = group[0]
        how = f"predicted with torch {torch.__version__}; nothing was computed"
        if args.tensors_only:
            how = f"tensors only, {how}"
        elif args.torch != cards.INSTALLED:
            how = f"as with torch {r['as_torch']}, {how}"
        print(f"\n{setting(r)}, on a {r['device']}, {how}. Figures are per device.\n")
        print("\n".join([*tables.predictions(group), "", *tables.costs(group)]))
        if args.card and not args.card.bf16:
            print(f"\nA {args.card.title} has no instructions for bf16: it is slow there.")
        if args.fits:
            print("\n" + "\n".join(tables.fitting(group)))
        if args.ways:
            print("\n" + "\n".join(way.table(group, args.card)))
    if args.timeline:
        together = " and of all those of one model" if len(records) > 1 else ""
        what = f"who holds the memory during one update, a picture per script{together}"
        print(f"\n{args.timeline}: {what}")
