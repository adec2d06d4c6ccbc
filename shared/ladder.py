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
import types
from pathlib import Path

import torch

from shared import UserError, bars, cli, images, models, stages, tables, text, workers
from shared.figures import by_model, setting, versions


def script_options(args):
    """Returns the command line that a script gets from the ladder's."""
    options = ["--preset", args.preset, "--model", args.model, "--data", args.data, "--epochs", args.epochs, "--seed", args.seed]
    options += args.task.passed_on(args)
    options += ["--max-steps", args.max_steps] if args.max_steps else []
    options += ["--devices", args.devices] if args.devices else []
    options += [] if args.pretrained else ["--no-pretrained"]
    return [str(o) for o in options]


def fingerprint(run, options, task):
    """Returns a hash of all that a measurement depends on: options, code, weights, versions and machine."""
    shared = Path(__file__).parent
    measuring = [shared / f"{name}.py" for name in ("cli", "data", "images", "ledger", "metrics", "models", "reviews", "torch_hooks")]
    files = [stages.path(run), *measuring, *sorted(shared.glob("text*.py")), models.TINY_WEIGHTS]
    machine = [platform.node(), os.cpu_count()]
    if torch.cuda.is_available():  # asked of the driver: PyTorch would take memory on the GPU to tell its name
        with contextlib.suppress(OSError):  # some containers come without it
            machine.append(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
    named = [Path(options[options.index(option) + 1]) for option in ("--data", "--model")]  # folders or files, or just names
    inputs = [(str(f), f.stat().st_size, f.stat().st_mtime) for path in named for f in (path, *sorted(path.rglob("*"))) if f.exists()]
    parts = [json.dumps([options, machine, versions(task), inputs]).encode(), *(f.read_bytes() for f in files)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def run_script(run, options, log, processes=None):
    """Runs a script and shows its last line of output while it runs, on one line.

    Args:
        run: one of stages.runs() or stages.plain().
        options: its command line.
        log: file for what it prints.
        processes: how many torchrun starts; None to run the script alone.

    Returns:
        its record, or None, and its last line of output; if it failed, the last one of its own.
    """
    record_file = log.with_suffix(".jsonl")
    record_file.unlink(missing_ok=True)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes else []
    command = [sys.executable, *torchrun, str(stages.path(run)), *options, "--record", str(record_file)]
    last = ["starting"]
    with log.open("wb") as log_file:
        # In a session of its own, so that all its processes can be ended together.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        reader = threading.Thread(target=_read, args=(process.stdout, log_file, last), daemon=True)
        reader.start()
        started = time.perf_counter()
        try:
            while process.poll() is None:
                _live(f"{run:20} {time.perf_counter() - started:3.0f} s  {last[0]}")
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
    if process.returncode < 0:
        return None, f"killed by signal {-process.returncode}"
    said = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("/".join(stages.path(run).parts[-2:]) + ": ")]
    return None, said[-1] if said else last[0]  # after it torchrun prints a lot


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


def predict(chosen, records):
    """Returns what shared/predict.py says of measured scripts, {run: record}; nothing, and why, if it cannot.

    Args:
        chosen: {run: its options, as cli.choose() and the task fill them in}.
        records: of these runs.
    """
    jobs = []
    for r in records:
        args = chosen[stages.run_of(r)]
        sizes = {"image_px": r.get("image_px"), "max_length": r.get("max_length"), "input_shapes": r["input_shapes"], "devices": r["world_size"], "trust_remote_code": getattr(args, "trust_remote_code", False)}
        wanted = workers.wanted("cpu" if args.accelerator == "cpu" else "gpu", args.preset, args.model, num_classes=args.num_classes, updates=len(r["input_shapes"]), **sizes)
        jobs.append(("simulation", "predict", stages.run_of(r), wanted))
    try:
        return {stages.run_of(p): p for p in workers.run(jobs)}
    except Exception as error:  # whatever it is, what was measured is not lost for it
        print(f"- no predictions: {type(error).__name__}: {error}")
        return {}


def choose(args, names):
    """Returns what to run, {run: its options}, after making what would fail in every script, or be downloaded in the first.

    Args:
        args: the ladder's options.
        names: the stages' folders that were asked for; if None, those that --model and --data suit.

    Raises:
        UserError: a model or data set is not there, or no stage is about it.
    """
    chosen, prepared = {}, {}
    for run in stages.runs(names or stages.names()):
        task = stages.asked_of_cli(stages.load(run))["task"]
        if not names and not ((not args.model or task.knows(args.model)) and (not args.data or task.suits(args.data))):
            continue
        if task not in prepared:
            prepared[task] = types.SimpleNamespace(**vars(args))
            cli.choose(prepared[task], task)
            task.prepare(prepared[task])
        chosen[run] = prepared[task]
    for option in ("max_length", "limit", "trust_remote_code"):
        if getattr(args, option) and text not in prepared:
            raise UserError(f"--{option.replace('_', '-')} is about texts, and none of the stages asked for is; leave it out, or add 11 to --stages")
    if not chosen:
        raise UserError(f"--model {args.model} and --data {args.data} do not suit each other: one is about images, the other about texts")
    return chosen


def main(argv=None):
    parser = cli.parser(__doc__.splitlines()[0], images, text)
    parser.add_argument("--stages", metavar="LIST", help="which, such as 01-06,08 (default: all that --model suits)")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder for ladder.jsonl, ladder.png and logs/ (default: out)")
    parser.add_argument("--fresh", action="store_true", help="measure everything again, also what ladder.jsonl has already")
    args = parser.parse_args(argv)
    args.command = shlex.join(["python", "-m", "shared.ladder", *(sys.argv[1:] if argv is None else argv)])
    names = stages.select([args.stages], "--stages") if args.stages else None
    cli.writable(args.out / "ladder.jsonl")
    if measure(args, choose(args, names)):
        sys.exit(1)


def measure(args, chosen):
    """Runs the chosen scripts that have not been measured yet, then prints the tables and draws the picture.

    Args:
        args: the ladder's options.
        chosen: {run: its options}.

    Returns:
        the runs that failed.
    """
    (args.out / "logs").mkdir(exist_ok=True)
    file = args.out / "ladder.jsonl"
    notes = dict.fromkeys(note for options in chosen.values() for note in options.notes)
    for note in [*notes, f"records go to {file}; interrupted, the same command goes on from there"]:
        print(f"- {note}")
    known, broken = stages.records(file)
    if broken:
        print(f"- {broken} unreadable line{'s' * (broken > 1)} in {file} left out")
        file.write_text("".join(json.dumps(r) + "\n" for r in known))
    records, failed = [], []
    for run, its in chosen.items():
        options = script_options(its)
        mark = fingerprint(run, options, its.task)
        record = next((r for r in reversed(known) if r.get("fingerprint") == mark and not args.fresh), None)
        if record:
            print(f"{run:20} measured before, on {record['date']}", flush=True)
        else:
            started = time.perf_counter()
            record, last = run_script(run, options, args.out / "logs" / f"{run.replace('/', '_')}.log")
            print(f"{run:20} {'done' if record else 'FAILED'} in {time.perf_counter() - started:.0f} s{'' if record else f': {last}'}", flush=True)
            if not record:
                failed.append(run)
                continue
            record.update(fingerprint=mark, ladder=args.command)
            with file.open("a") as f:
                f.write(json.dumps(record) + "\n")
        records.append(record)
    if records:
        predicted = predict(chosen, records)
        for group in by_model(records):
            print(f"\n{setting(group[0])}\n" + "\n".join(tables.measured(group, predicted)))
        bars.draw(records, args.out / "ladder.png")
        print(f"\n{file}, {args.out / 'ladder.png'}: records and picture; {args.out / 'logs'}: what the stages printed")
    return failed


if __name__ == "__main__":
    cli.run(main)
