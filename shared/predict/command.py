"""Predicts what every script needs of a GPU, without one.

Its own code runs, on tensors that have no memory.
"""

import dataclasses
import json
import sys
import types
from pathlib import Path

import torch

from shared.cli import UserError
from shared.common import options
from shared.common.files import writable_folder
from shared.common.writing import replaceable
from shared.images import models as vits
from shared.images.task import TASK as IMAGES
from shared.predict import cards, rates, tables, timeline, way
from shared.predict.check import check
from shared.predict.fits import largest_micro_batch
from shared.predict.jobs import Wanted, run_jobs, supported_torch
from shared.predict.limits import reasonable_card
from shared.predict.simulation import one_by_one, predict
from shared.records import scripts
from shared.records.record import by_model, setting
from shared.text.task import TASK as TEXTS
from shared.text.task import add_model_options

# With these options, --card does not tell which way leads to it.
NO_WAY = ("fits", "timeline", "one_by_one", "late_zero_grad", "tensors_only")


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
    run = "run the scripts for real as well, a few updates each on noise, and compare; on a GPU if "
    preset = "default: full, ViT-L/16 at 224 px and DistilBERT at 512 tokens"
    micro = "images or texts per forward pass and device, from 05 on (default: the script's)"
    batch = "images or texts per update (default: the script's)"
    on = "predict for a GPU (default), or for a computer without one, as the tests do"
    options.add_stages(parser)
    add("--preset", choices=options.PRESETS, default="full", help=preset)
    add(
        "--model",
        type=options.name,
        metavar="NAME[,NAME...]",
        help=f"{models} (default: the preset's)",
    )
    add("--image-px", type=positive, metavar="N", help="edge of the images (default: the model's)")
    add_model_options(parser)
    add("--batch-size", type=positive, metavar="N", help=batch)
    add("--micro-batch-size", type=positive, metavar="N", help=micro)
    add("--devices", type=positive, metavar="N", help="GPUs, from 08 on (default: 4)")
    one = "11: apply the techniques one by one, from before.py on; with --devices 1 no sharding"
    add("--one-by-one", action="store_true", help=one)
    plain = "the scripts in plain PyTorch, plain.py, instead of train.py; 01 to 10"
    add("--plain", action="store_true", help=plain)
    add("--on", choices=("gpu", "cpu"), help=on)
    add("--late-zero-grad", action="store_true", help=late)
    add("--card", type=cards.get, metavar="NAME", help=card)
    add("--torch", type=cards.version, metavar="VERSION", help=version)
    add("--tensors-only", action="store_true", help=only)
    add("--fits", type=cards.card_or_gb, metavar="GB|CARD", help=fits)
    pictures = "draw who holds the memory during one update, into DIR"
    add("--timeline", type=Path, metavar="DIR", help=pictures)
    add("--check", action="store_true", help=f"{run}there is one. They need what is predicted")
    add("--json", action="store_true", help="print a list of records instead of tables")
    return parser


def parse(argv):
    """Parses the command line.

    Raises:
        UserError: an option is unknown, out of range, or does not fit another.
    """
    args = make_parser().parse_args(argv)
    args.command = options.command_of(["-m", "shared.predict"], argv)
    supported_torch()
    if isinstance(args.fits, cards.Card):
        if args.card and args.card != args.fits:
            raise UserError("--card and --fits name different cards; leave --card out")
        args.card, args.fits = args.fits, args.fits.gb
    elif args.fits:
        reasonable_card("--fits", args.fits)
    choose(args)
    if args.check:
        changing = ("image_px", "batch_size", "micro_batch_size", "one_by_one", "on")
        changing += ("late_zero_grad", "fits", "timeline", "card", "torch", "tensors_only")
        for name in changing:
            if getattr(args, name):
                option = f"--{name.replace('_', '-')}"
                raise UserError(f"--check runs the scripts as they are; leave {option} out")
    if args.timeline:
        writable_folder(args.timeline, "--timeline")
        for file in ("timeline.png", "timelines.json"):
            replaceable(args.timeline / file)
    if args.timeline and (args.one_by_one or len(args.models) > 1):
        raise UserError(
            "--timeline draws the scripts of one model; leave --one-by-one and further models out"
        )
    if args.late_zero_grad and any(scripts.get(name).plain for name in args.names):
        raise UserError("--late-zero-grad changes the train.py of a stage; leave --plain out")
    if args.on == "cpu":
        for name in ("fits", "card", "torch", "tensors_only"):
            if getattr(args, name):
                option = f"--{name.replace('_', '-')}"
                raise UserError(f"{option} is about a GPU's memory; leave --on cpu out")
    if args.fits and args.tensors_only:
        raise UserError("--fits needs all that is reserved; leave --tensors-only out")
    args.torch = args.torch or cards.INSTALLED
    return args


def choose(args):
    """Fills in args.names, the scripts to simulate, and args.models; None is the preset's.

    Raises:
        UserError: there is no such model, or options and scripts do not suit each other.
    """
    args.models = args.model.split(",") if args.model else [None]
    named = options.selected(args)
    chosen = scripts.plain(named) if args.plain else named or scripts.stages()
    chosen = options.beside(args, chosen)
    modules = {name: scripts.get(name).load() for name in chosen}
    given = [(IMAGES if IMAGES.knows(m) else TEXTS, f"--model {m}") for m in args.models if m]
    if args.image_px:
        given.append((IMAGES, f"--image-px {args.image_px}"))
    if args.max_length:
        given.append((TEXTS, f"--max-length {args.max_length}"))
    if args.one_by_one:
        given.append((TEXTS, "--one-by-one"))
    if args.trust_remote_code:
        given.append((TEXTS, "--trust-remote-code"))
    for task, option in given:
        wrong = [name for name in chosen if modules[name].cli.TASK.unit != task.unit]
        if wrong and named:
            other = modules[wrong[0]].cli.TASK.unit
            raise UserError(f"{option} is about {task.unit}, but {wrong[0]} is about {other}")
        chosen = [name for name in chosen if name not in wrong]
        if not chosen and args.plain:
            raise UserError(
                f"{option} is about {task.unit}, but the scripts in plain PyTorch are about "
                "images; leave one of them out"
            )
        if not chosen:
            first, its = given[0]
            raise UserError(
                f"{option} is about {task.unit}, but {its} is about {first.unit}; leave one of "
                "them out"
            )
    with_micro = [name for name in chosen if hasattr(modules[name], "MICRO_BATCH_SIZE")]
    if args.micro_batch_size and not with_micro:
        raise UserError(
            f"--micro-batch-size {args.micro_batch_size}: none of the scripts asked for has "
            "micro-batches; 05_grad_accum is the first"
        )
    if args.devices and not any(modules[name].DEVICES > 1 for name in chosen):
        raise UserError(
            f"--devices {args.devices}: none of the scripts asked for shares the work; 08_fsdp is "
            "the first"
        )
    if args.one_by_one and not any(name.endswith("/train") for name in chosen):
        raise UserError("--one-by-one leads from before.py to train.py; name their folder, 11")
    for task in {modules[name].cli.TASK for name in chosen}:
        its = [name for name in chosen if modules[name].cli.TASK is task]
        try:
            for model in args.models:
                _check_model(args, task, model)
        except UserError:
            if {*its} & {*(named or scripts.stages())}:
                raise
            chosen = [name for name in chosen if name not in its]  # side roads that came along
    args.names = chosen


def _check_model(args, task, model):
    chosen = types.SimpleNamespace(
        preset=args.preset,
        model=model,
        data="fake",
        pretrained=False,
        max_length=args.max_length,
        trust_remote_code=args.trust_remote_code,
    )
    options.choose(chosen, task)
    if args.image_px and task is IMAGES:
        vits.fits_patches(chosen.model, args.image_px)


def wanted(args, **changed):
    """Returns what to simulate: a list of (script's name, Wanted).

    Args:
        args: from parse().
        changed: fields of Wanted that are not as in args.
    """
    given = {f.name for f in dataclasses.fields(Wanted)} & vars(args).keys()
    same = {name: getattr(args, name) for name in given - {"model"}}
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
                options = {**same, "model": model, "techniques": chosen, **changed}
                found.append((name, Wanted(**options)))
    return found


def main(argv=None):
    args = parse(argv)
    cuda = torch.cuda.is_available()
    changed = {"device": args.on or ("cpu" if args.check and not cuda else "gpu")}
    if args.check and cuda and not args.devices:  # as the scripts choose it
        changed["devices"] = max(n for n in (1, 2, 4) if n <= torch.cuda.device_count())
    if args.check and cuda:
        changed["card"] = cards.of_this_machine(torch.cuda.get_device_properties(0))
    if args.on == "cpu":
        changed["rates"] = rates.probe()
    simulations = wanted(args, **changed)
    if args.check:
        sys.exit(0 if check(args, [(predict, *job) for job in simulations]) else 1)
    with_ways = args.card and not any(getattr(args, name) for name in NO_WAY)
    if with_ways:
        results = way.find(simulations, args.card)
    else:
        results = run_jobs([(predict, *job, bool(args.timeline)) for job in simulations])
    records = [r[0] if args.timeline else r for r in results]
    records = [{**r, "command": args.command} for r in records]
    if args.fits:
        left = [args.fits - tables.allowance(r) for r in records]
        searches = [(largest_micro_batch, *job, gb) for job, gb in zip(simulations, left)]
        largest = run_jobs(searches)
        for r, n in zip(records, largest):
            needs = tables.needs(r)
            fits = {"card_gb": args.fits, "needs_gb": needs, "fits": needs <= args.fits}
            r["fits"] = {**fits, "largest_micro_batch": n}
    if args.timeline:
        timeline.draw_all(results, args.timeline)
    if args.json:
        print(json.dumps(records, indent=1))
        return records
    for group in by_model(records):
        r = group[0]
        how = f"predicted with torch {torch.__version__}; nothing was computed"
        if args.tensors_only:
            how = f"tensors only, {how}"
        elif args.torch != cards.INSTALLED:
            how = f"as with torch {r['as_torch']}, {how}"
        print(f"\n{setting(r)}, on a {r['device']}, {how}. Figures are per device.\n")
        print("\n".join(tables.predictions(group)))
        print("\n" + "\n".join(tables.costs(group)))
        if args.card and not args.card.bf16:
            print(f"\nA {args.card.title} has no instructions for bf16: it is slow there.")
        if args.fits:
            print("\n" + "\n".join(tables.fitting(group)))
        if with_ways:
            print("\n" + "\n".join(way.table(group, args.card)))
    if args.timeline:
        together = " and of all those of one model" if len(records) > 1 else ""
        what = f"who holds the memory during one update, a picture per script{together}"
        print(f"\n{args.timeline}: {what}")
    return records
