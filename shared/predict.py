"""Predicts what every stage needs of a GPU, without one: its own code, run on tensors that have no memory."""

import argparse
import contextlib
import json
import shlex
import sys
import tempfile
from pathlib import Path

import psutil
import torch

from shared import UserError, cli, ladder, models, stages, timeline, workers
from shared.ledger import CATEGORIES
from shared.metrics import LEDGER_UPDATES
from shared.report import aligned, scale, size

# What a card holds besides the tensors that are simulated: the CUDA context with the kernels (about 0.5 GB), buffers of
# NCCL, and workspaces of cuBLAS, which PyTorch's allocator counts, but no operation shows. An assumption to be on the safe
# side with, not a measurement.
ALLOWANCE_GB = 1.0


def table(records):
    """Returns the predictions as lines of text: peaks and where they are, then who holds the memory there."""
    unit, factor = scale(records)

    def amount(gb):
        return "" if gb is None else f"{gb * factor:.2f}"

    first = records[0]["train"]["device_peak_gb"]
    heading = ("stage", "devices", "images", "at once", f"load {unit}", f"load: host {unit}", f"allocated {unit}", f"reserved {unit}", f"host {unit}", "vs first", "simulated in", "peak in")
    places = [where(r).ljust(max(len(where(r)) for r in records)) for r in records]
    rows = []
    for r, place in zip(records, places):
        load, train = r["load"], r["train"]
        amounts = [load["device_peak_gb"], load["host_peak_gb"], train["device_peak_gb"], train["device_reserved_gb"], train["host_peak_gb"]]
        sizes = (r["world_size"], r["batch_size"], r["micro_batch_size"] or r["batch_size"])
        rows.append((r["stage"], *map(str, sizes), *map(amount, amounts), f"{first / train['device_peak_gb']:.1f}x less" if r is not records[0] else "", f"{r['seconds']:.1f} s", place))
    held = []
    for r in records:
        held.append((r["stage"], *(amount(r["train"]["breakdown_gb"].get(label)) for label in CATEGORIES)))
        if on_host(r):
            held.append((r["stage"] + ", host", *(amount(r["host_breakdown_gb"]["train"].get(label)) for label in CATEGORIES)))
    return [*aligned(heading, rows), "", f"Who holds it at the peak, in {unit}:", *aligned(("stage", *CATEGORIES), held)]


def on_host(record):
    """Tells whether a training holds more on the host than a few numbers."""
    return (record["train"]["host_peak_gb"] or 0) > 0.01 * record["train"]["device_peak_gb"]


def where(record):
    """Tells where in the update a stage's peak is, such as "backward of encoder.layers.encoder_layer_23.mlp.3"."""
    at = record["peak_at"]["train"]
    return f"{at['phase']} of {at['module']}" if at["module"] else at["phase"]


def needs(record):
    """Returns what a stage needs of a card, in GB."""
    return max(record[phase]["device_reserved_gb"] for phase in ("load", "train")) + ALLOWANCE_GB


def fitting(records):
    """Returns which stages fit on a card, and with what micro-batch, as lines of text; the records have "fits"."""
    fits = [r["fits"] for r in records]
    rows = [(r["stage"], f"{f['needs_gb']:.2f}", "yes" if f["fits"] else "no", str(f["largest_micro_batch"] or "none fits")) for r, f in zip(records, fits)]
    first = next((r["stage"] for r in records if r["fits"]["fits"]), None)
    return [
        f"On a card of {fits[0]['card_gb']:g} GB, {ALLOWANCE_GB:g} GB of it for what is not simulated (CUDA context, NCCL, workspaces of cuBLAS):",
        *aligned(("stage", "needs GB", "fits", "largest micro-batch, images"), rows),
        f"The first that fits: {first}" if first else "None of these fits as it is.",
    ]


def differences(record):
    """Yields (phase, what, measured GB, predicted GB, relative error, largest error that is good enough)."""
    measured = record["measured"]
    gpu = measured["train"]["device_reserved_gb"] is not None
    for phase in ("load", "train"):
        for what, name, limit in (("allocated", "device_peak_gb", 0.02 if gpu else 0.01), ("reserved", "device_reserved_gb", 0.08)):
            m, p = measured[phase][name], record[phase][name]
            if m:
                yield phase, what, m, p, p / m - 1, limit


def compare(records):
    """Returns predicted and measured peaks side by side, as lines of text; the records have "measured"."""
    unit, factor = scale(records)
    rows = []
    for r in records:
        for phase, what, m, p, error, _ in differences(r):
            same = r[phase]["breakdown_gb"] == r["measured"][phase]["breakdown_gb"]
            details = ("same" if same else "differs") if what == "allocated" else ""
            rows.append((r["stage"], phase, what, f"{m * factor:.3f}", f"{p * factor:.3f}", f"{error:+.2%}", f"{round((p - m) * 1e9):+,}", details))
    return aligned(("stage", "phase", "peak", f"measured {unit}", f"predicted {unit}", "error", "bytes", "breakdown"), rows)


def folder(path):
    """Makes a folder to write into, before minutes are spent on what it is to hold.

    Raises:
        UserError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise UserError(f"--timeline {path}: {error.strerror}; choose another folder") from None


def number(text):
    """Converts an option's text to a positive number.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text} is not a positive number")


def parse(argv):
    """Parses the command line.

    Raises:
        UserError: an option is unknown, out of range, or does not fit another.
    """
    parser = cli.Parser(description=__doc__, allow_abbrev=False)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="which, such as 06_sgd or 01-06 (default: all)")
    parser.add_argument("--preset", choices=cli.PRESETS, default="full", help="default: full, ViT-L/16 at 224 px")
    parser.add_argument("--model", metavar="NAME", help="one of torchvision's vit_*, or vit_tiny (default: the preset's)")
    parser.add_argument("--image-px", type=cli.positive, metavar="N", help="edge of the pictures (default: the model's)")
    parser.add_argument("--batch-size", type=cli.positive, metavar="N", help="images per update (default: the stage's)")
    parser.add_argument("--micro-batch-size", type=cli.positive, metavar="N", help="images per forward pass and device, from 05 on (default: the stage's)")
    parser.add_argument("--devices", type=cli.positive, metavar="N", help="GPUs, from 08 on (default: 4)")
    parser.add_argument("--on", choices=("gpu", "cpu"), help="predict for a GPU (default), or for a computer without one, as the tests do")
    parser.add_argument("--late-zero-grad", action="store_true", help="what if zero_grad() came between forward and backward pass, as in the scripts of 2023; 01 to 04")
    parser.add_argument("--fits", type=number, metavar="GB", help=f"tell which stages fit on a card of GB (1e9 bytes), by what is reserved and {ALLOWANCE_GB:g} GB for what is not simulated, and with what micro-batch")
    parser.add_argument("--timeline", type=Path, metavar="DIR", help="draw who holds the memory during one update, into DIR")
    parser.add_argument("--check", action="store_true", help="run the stages for real, a few updates each on noise, and compare; on a GPU if there is one. They need the memory that is predicted")
    parser.add_argument("--json", action="store_true", help="print a list of records instead of tables")
    args = parser.parse_args(argv)
    args.command = shlex.join(["python", "-m", "shared.predict", *(sys.argv[1:] if argv is None else argv)])
    args.stages = stages.select(args.stages, "stage") if args.stages else stages.names()
    workers.supported_torch()
    args.model = args.model or cli.PRESETS[args.preset]["model"]
    args.image_px = args.image_px or models.image_px(args.model)
    models.fits_patches(args.model, args.image_px)
    if args.check:
        changed = [f"--{name.replace('_', '-')}" for name in ("batch_size", "micro_batch_size", "on", "late_zero_grad", "fits", "timeline") if getattr(args, name)]
        changed += ["--image-px"] if args.image_px != models.image_px(args.model) else []
        if changed:
            raise UserError(f"--check runs the scripts as they are; leave {changed[0]} out")
    if args.timeline:
        folder(args.timeline)
    asked = [stages.asked_of_cli(stages.load(stage)) for stage in args.stages] if args.micro_batch_size or args.devices else []
    if args.micro_batch_size and not any("micro_batch_size" in a for a in asked):
        raise UserError(f"--micro-batch-size {args.micro_batch_size}: none of the stages asked for has micro-batches; 05_grad_accum is the first")
    if args.devices and not any(a["devices"] > 1 for a in asked):
        raise UserError(f"--devices {args.devices}: none of the stages asked for shares the work; 08_fsdp is the first")
    if args.on == "cpu" and args.fits:
        raise UserError("--fits asks for a GPU's memory; leave --on cpu out")
    if args.timeline:
        cli.writable(args.timeline / "timeline.png")
    return args


def measure(args, stage, logs):
    """Runs a stage for a few updates on noise.

    Returns:
        its record; None, and says why, if it failed.
    """
    options = ["--preset", args.preset, "--model", args.model, "--data", "fake", "--no-pretrained", "--max-steps", str(LEDGER_UPDATES)]
    options += ["--devices", str(args.devices)] if args.devices else []
    record, last = ladder.run_stage(stage, options, logs / f"{stage}.log")
    said = f"measured: {size(record['load']['device_peak_gb'])} loading, {size(record['train']['device_peak_gb'])} training" if record else f"FAILED: {last}"
    print(f"{stage:20} {said}", file=sys.stderr, flush=True)
    return record


def check(args, options):
    """Measures and predicts the stages, and prints both.

    Returns:
        whether every prediction is close enough, and every stage ran.
    """
    records, failed = [], 0
    predicted = workers.run([("simulation", "predict", stage, options) for stage in args.stages])
    for p in predicted:
        needed, there = p["train"]["device_peak_gb"] * p["world_size"], psutil.virtual_memory().available / 1e9
        if options.device == "cpu" and needed > there:
            print(f"{p['stage']:20} left out: needs {needed:.1f} GB, {there:.1f} GB are free here", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as logs:
            measured = measure(args, p["stage"], Path(logs))
        failed += measured is None
        records += [{**p, "command": args.command, "measured": measured}] if measured else []
    if args.json:
        print(json.dumps(records, indent=1))
    elif records:
        print(f"{records[0]['model']} at {args.image_px} px on {records[0]['measured']['device']}, torch {torch.__version__}\n")
        print("\n".join(compare(records)))
    errors = [(abs(error), limit) for r in records for *_, error, limit in differences(r)]
    return not failed and all(error <= limit for error, limit in errors)


def main(argv=None):
    args = parse(argv)
    cuda = torch.cuda.is_available()
    device = args.on or ("cpu" if args.check and not cuda else "gpu")
    devices = args.devices
    if args.check and cuda and not devices:  # as the stages choose it
        devices = max(n for n in (1, 2, 4) if n <= torch.cuda.device_count())
    options = workers.wanted(device, args.preset, args.model, args.image_px, args.batch_size, args.micro_batch_size, devices, late_zero_grad=args.late_zero_grad)
    if args.check:
        sys.exit(0 if check(args, options) else 1)
    results = workers.run([("simulation", "predict", stage, options, bool(args.timeline)) for stage in args.stages])
    records = [{**(r[0] if args.timeline else r), "command": args.command} for r in results]
    if args.fits:
        largest = workers.run([("fits", "largest_micro_batch", stage, options, args.fits - ALLOWANCE_GB) for stage in args.stages])
        for r, n in zip(records, largest):
            r["fits"] = {"card_gb": args.fits, "needs_gb": needs(r), "fits": needs(r) <= args.fits, "largest_micro_batch": n}
    if args.timeline:
        timeline.draw_all(results, args.timeline)
    if args.json:
        print(json.dumps(records, indent=1))
        return records
    r = records[0]
    print(f"{r['model']} at {r['image_px']} px on a {r['device']}, predicted with torch {torch.__version__}; nothing was computed. Figures are per device.\n")
    print("\n".join(table(records)))
    if args.fits:
        print("\n" + "\n".join(fitting(records)))
    if args.timeline:
        print(f"\n{args.timeline}: who holds the memory during one update, a picture per stage" + (" and one of them all" if len(records) > 1 else ""))
    return records


if __name__ == "__main__":
    cli.run(main)
