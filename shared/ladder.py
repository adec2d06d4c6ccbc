"""Runs the stages one after the other, each in a process of its own, and shows what every one of them saved.

Writes ladder.jsonl (a record per stage), ladder.png and logs/ into --out. Run again, it goes on where it stopped: what
was measured before with the same options, code and versions is not measured again.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import matplotlib
import torch

from shared import cli, data, models, stages, workers
from shared.ledger import CATEGORIES
from shared.metrics import LEDGER_UPDATES
from shared.report import aligned, png_text, scale, versions

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt


def stage_options(args):
    """Returns the command line that a stage gets from the ladder's."""
    options = ["--preset", args.preset, "--model", args.model, "--data", args.data, "--epochs", args.epochs, "--seed", args.seed]
    options += ["--max-steps", args.max_steps] if args.max_steps else []
    options += ["--devices", args.devices] if args.devices else []
    options += [] if args.pretrained else ["--no-pretrained"]
    return [str(o) for o in options]


def fingerprint(stage, options):
    """Returns a hash of all that a measurement depends on: options, code, weights, versions and machine."""
    shared = Path(__file__).parent
    measuring = [shared / f"{name}.py" for name in ("cli", "data", "ledger", "metrics", "models", "torch_hooks")]
    files = [stages.ROOT / stage / "train.py", *measuring, models.TINY_WEIGHTS]
    machine = [platform.node(), os.cpu_count()]
    if torch.cuda.is_available():  # asked of the driver: PyTorch would take memory on the GPU to tell its name
        with contextlib.suppress(OSError):  # some containers come without it
            machine.append(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
    pictures = [(str(f), f.stat().st_size, f.stat().st_mtime) for f in sorted(Path(options[options.index("--data") + 1]).rglob("*"))]
    parts = [json.dumps([options, machine, versions(), pictures]).encode(), *(f.read_bytes() for f in files)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def run_stage(stage, options, log):
    """Runs a stage and shows its last line of output while it runs, on one line.

    Returns:
        its record, or None, and its last line of output.
    """
    record_file = log.with_suffix(".jsonl")
    record_file.unlink(missing_ok=True)
    command = [sys.executable, str(stages.ROOT / stage / "train.py"), *options, "--record", str(record_file)]
    last = ["starting"]
    with log.open("wb") as log_file:
        # In a session of its own, so that all its processes can be ended together.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        reader = threading.Thread(target=_read, args=(process.stdout, log_file, last), daemon=True)
        reader.start()
        started = time.perf_counter()
        try:
            while process.poll() is None:
                _live(f"{stage:20} {time.perf_counter() - started:3.0f} s  {last[0]}")
                time.sleep(0.2)
            reader.join(timeout=5)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _live("")
    records, _ = stages.records(record_file)
    record_file.unlink(missing_ok=True)
    if process.returncode == 0 and records:
        return records[-1], last[0]
    return None, last[0] if process.returncode > 0 else f"killed by signal {-process.returncode}"


def _read(pipe, log_file, last):
    text = b""
    for chunk in iter(lambda: pipe.read1(), b""):
        log_file.write(chunk)
        log_file.flush()
        text = (text + chunk)[-4000:]
        lines = [line for line in re.split(r"[\r\n]+", text.decode(errors="replace")) if line.strip()]
        last[0] = lines[-1].strip() if lines else last[0]


def _live(text):
    if sys.stdout.isatty():
        width = os.get_terminal_size().columns - 1
        print(f"\r{text[:width]:{width}}", end="\r", flush=True)


def predict(args, records):
    """Returns what shared/predict.py says of measured stages, {stage: record}; nothing, and why, if it cannot."""
    device = "cpu" if args.accelerator == "cpu" else "gpu"
    options = [
        workers.wanted(device, args.preset, args.model, args.image_px, devices=r["world_size"], num_classes=args.num_classes, updates=min(r["steps"], LEDGER_UPDATES))
        for r in records
    ]
    try:
        predicted = workers.run([("simulation", "predict", r["stage"], wanted) for r, wanted in zip(records, options)])
    except Exception as error:  # whatever it is, what was measured is not lost for it
        print(f"- no predictions: {type(error).__name__}: {error}")
        return {}
    return {p["stage"]: p for p in predicted}


def table(records, predicted):
    """Returns the measured ladder as lines of text, one per stage under a heading, with what was predicted of it."""
    unit, factor = scale(records)
    heading = ("stage", f"load {unit}", f"train {unit}", "predicted", "vs before", "vs first", f"reserved {unit}", "predicted", f"host: load {unit}", f"host: train {unit}", "images/s", "test acc.")
    first = records[0]["train"]["device_peak_gb"]
    rows = []
    for r, before in zip(records, [None, *records]):
        peak = r["train"]["device_peak_gb"]
        p = predicted.get(r["stage"], {"train": {"device_peak_gb": None, "device_reserved_gb": None}})["train"]
        amounts = [r["train"]["device_reserved_gb"], p["device_reserved_gb"], r["load"]["host_peak_gb"], r["train"]["host_peak_gb"]]
        rows.append([
            r["stage"],
            f"{r['load']['device_peak_gb'] * factor:.2f}",
            f"{peak * factor:.2f}",
            f"{p['device_peak_gb'] * factor:.2f}" if p["device_peak_gb"] else "",
            f"{peak / before['train']['device_peak_gb'] - 1:+.1%}" if before else "",
            f"{first / peak:.1f}x less" if before else "",
            *("" if gb is None else f"{gb * factor:.2f}" for gb in amounts),
            f"{r['images_per_second']:.0f}" if r["images_per_second"] else "",
            f"{r['test_accuracy']:.1%}",
        ])
    return aligned(heading, rows)


def draw(records, file):
    """Draws the peaks while training as a bar per stage, stacked by category, and the peaks while loading.

    Bars that would be too small beside the first are drawn a second time, on a scale of their own.
    """
    peaks = [r["train"]["device_peak_gb"] for r in records]
    small = [r for r, peak in zip(records, peaks) if peak < max(peaks) / 5]
    parts = [part for part in (records, small) if part]
    figure, axes = plt.subplots(1, len(parts), figsize=(13, 5.5), width_ratios=[len(p) for p in parts], layout="constrained", squeeze=False)
    for ax, part in zip(axes[0], parts):
        _draw_bars(ax, part)
    axes[0][0].legend(frameon=False)
    r = records[0]
    figure.suptitle(f"Peak device memory: {r['model']}, {r['dataset']} at {r['image_px']} px, on {r['device']}, torch {r['versions']['torch']}, {r['date']}", fontsize=10)
    figure.savefig(file, dpi=130, metadata=png_text(records))
    plt.close(figure)


def _draw_bars(axes, records):
    unit, factor = scale(records)
    positions = range(len(records))
    bottoms = [0.0] * len(records)
    for label, color in zip(CATEGORIES, plt.get_cmap("tab10").colors):
        heights = [r["train"]["breakdown_gb"].get(label, 0) * factor for r in records]
        axes.bar(positions, heights, bottom=bottoms, label=label, color=color, width=0.65)
        bottoms = [a + b for a, b in zip(bottoms, heights)]
    axes.plot(positions, [r["load"]["device_peak_gb"] * factor for r in records], "kd", ms=5, label="peak while loading")
    reserved = [(x, r["train"]["device_reserved_gb"] * factor) for x, r in zip(positions, records) if r["train"]["device_reserved_gb"]]
    if reserved:
        axes.plot(*zip(*reserved), "k_", ms=18, label="reserved by the allocator")
    for x, r in zip(positions, records):
        peak = r["train"]["device_peak_gb"] * factor
        axes.annotate(f"{peak:.3g}", (x, max(peak, bottoms[x])), ha="center", xytext=(0, 4), textcoords="offset points")
    axes.set_xticks(positions, [r["stage"].replace("_", "\n") for r in records], fontsize=8)
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)


def main(argv=None):
    parser = cli.parser(__doc__.splitlines()[0])
    parser.add_argument("--stages", metavar="LIST", help="which, such as 01-06,08 (default: all)")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder for ladder.jsonl, ladder.png and logs/ (default: out)")
    parser.add_argument("--fresh", action="store_true", help="measure everything again, also what ladder.jsonl has already")
    args = parser.parse_args(argv)
    args.command = shlex.join(["python", "-m", "shared.ladder", *(sys.argv[1:] if argv is None else argv)])
    chosen = stages.select([args.stages], "--stages") if args.stages else stages.names()
    cli.choose(args)
    cli.writable(args.out / "ladder.jsonl")
    # What would fail in every stage, or be downloaded in the first, is better seen now.
    _, args.num_classes, args.dataset = data.image_sets(args)
    models.checkpoint(args)
    if measure(args, chosen):
        sys.exit(1)


def measure(args, chosen):
    """Runs the chosen stages that have not been measured yet, then prints the table and draws the picture.

    Returns:
        the stages that failed.
    """
    (args.out / "logs").mkdir(exist_ok=True)
    file = args.out / "ladder.jsonl"
    for note in [*args.notes, f"records go to {file}; interrupted, the same command goes on from there"]:
        print(f"- {note}")
    known, broken = stages.records(file)
    if broken:
        print(f"- {broken} unreadable line{'s' * (broken > 1)} in {file} left out")
        file.write_text("".join(json.dumps(r) + "\n" for r in known))
    options = stage_options(args)
    records, failed = [], []
    for stage in chosen:
        mark = fingerprint(stage, options)
        record = next((r for r in reversed(known) if r.get("fingerprint") == mark and not args.fresh), None)
        if record:
            print(f"{stage:20} measured before, on {record['date']}", flush=True)
        else:
            started = time.perf_counter()
            record, last = run_stage(stage, options, args.out / "logs" / f"{stage}.log")
            print(f"{stage:20} {'done' if record else 'FAILED'} in {time.perf_counter() - started:.0f} s{'' if record else f': {last}'}", flush=True)
            if not record:
                failed.append(stage)
                continue
            record.update(fingerprint=mark, ladder=args.command)
            with file.open("a") as f:
                f.write(json.dumps(record) + "\n")
        records.append(record)
    if records:
        print("\n" + "\n".join(table(records, predict(args, records))))
        draw(records, args.out / "ladder.png")
        print(f"\n{file}, {args.out / 'ladder.png'}: records and picture; {args.out / 'logs'}: what the stages printed")
    return failed


if __name__ == "__main__":
    cli.run(main)
