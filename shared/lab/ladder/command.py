"""Run the scripts one after the other, each in its own process, and show what each one saves.

Write ladder.jsonl (a record per script), ladder.png and logs/ into --out. When it is run again, it
continues where it stopped: what was measured before with the same options, code and versions is not
measured again.
"""

import os
import subprocess
import sys
import time
import types
from pathlib import Path

import torch

from emulated_gpu import cards, launch
from emulated_gpu.build import BuildError
from shared.cli import Parser, UserError, add_options, command_of, keep_apart, location
from shared.cli import choose as choose_model
from shared.images.cli import TASK as IMAGES
from shared.lab.ladder.before import fingerprint
from shared.lab.records import bars, ladder_table, scripts
from shared.lab.records.reading import by_model, by_script, read, setting
from shared.lab.records.running import forks, run_script
from shared.record import append
from shared.text import data as texts
from shared.text.cli import TASK as TEXTS
from shared.text.models import TINY, TINY_GPT

GPUS = 4  # emulated ones, for the scripts from 08 on
ONE_GPU = "01-07", *scripts.ON_ONE_GPU
UPDATES = 3  # on them: the second is the first with everything allocated at its start


def on_emulated(card, args, argv):
    """Start this command anew, with GPUs of a card that is not there; return if it has been.

    On them, random weights and noise take the place of what a user would download, and three
    updates are enough, unless an option says otherwise.
    """
    if not launch.is_emulated():
        try:
            variables = launch.environment(card, args.devices or GPUS)
        except BuildError as error:
            raise UserError(f"--card: {error}") from None
        command = [
            sys.executable,
            "-m",
            "shared",
            "ladder",
            *(sys.argv[1:] if argv is None else argv),
        ]
        sys.stdout.flush()
        os.execve(sys.executable, command, variables)
    args.dry_run |= args.preset != "tiny"
    args.max_steps = args.max_steps or UPDATES
    print(f"- on emulated GPUs: {card.title}. Nothing is measured on a real one", flush=True)


def script_options(args):
    """Return the options for a script, from those of the ladder."""
    options = ["--preset", args.preset, "--model", args.model, "--data", args.data]
    options += ["--epochs", args.epochs, "--seed", args.seed]
    if args.task.unit == "texts":
        options += ["--max-length", args.wanted_length] if args.wanted_length else []
        options += ["--limit", args.limit] if args.limit else []
        options += ["--trust-remote-code"] if args.trust_remote_code else []
    options += ["--max-steps", args.max_steps] if args.max_steps else []
    options += ["--devices", args.devices] if args.devices else []
    options += [] if args.pretrained else ["--no-pretrained"]
    return [str(option) for option in options]


def emulated(args, argv):
    """Return the records of the same ladder on emulated GPUs of this machine's kind, by script.

    They are {} without a GPU, or with one that is not known. A failure of any kind is printed and
    not raised, so that the measurements are not lost.
    """
    if launch.is_emulated() or not torch.cuda.is_available():
        return {}
    key = cards.key_of_this_machine(torch.cuda.get_device_properties(0))
    if not key:
        return {}
    print("- running the same on emulated GPUs, to compare", flush=True)
    out = args.out / "emulated"
    words = sys.argv[1:] if argv is None else argv
    command = [sys.executable, "-m", "shared", "ladder", *words, "--card", key, "--out", str(out)]
    if not args.devices:  # as many as the scripts found here
        command += ["--devices", str(min(GPUS, torch.cuda.device_count()))]
    with open(args.out / "logs" / "emulated.txt", "w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
    if code:
        print(f"- not all of it ran: {log.name} says why")
    return by_script(read(out / "ladder.jsonl")[0])


def choose(args, names):
    """Return the scripts to run, {script: its options}, after preparing data and weights.

    These are the named scripts; if names is None, those that --model and --data suit. Data and
    weights are prepared here, once. So an error that every script would make is reported before
    the first one starts, and no script's time includes a download.
    """
    chosen, prepared = {}, {}
    wanted = names or scripts.stages()
    for name in scripts.with_side_roads(wanted) if args.side_roads else wanted:
        task = scripts.get(name).load().TASK
        if name not in (names or ()) and not suits(task, args.model, args.data):
            continue
        if task not in prepared:
            prepared[task] = types.SimpleNamespace(**vars(args))
            prepared[task].wanted_length = args.max_length
            choose_model(prepared[task], task)
            keep_apart(prepared[task], args.out)
            task.prepare(prepared[task])
        chosen[name] = prepared[task]
    if not chosen:
        raise UserError(f"no script is for both --model {args.model} and --data {args.data}")
    return chosen


def suits(task, model, data):
    """Return whether --model and --data, where they are given, suit the scripts of a task."""
    path, presets = Path(data or ""), {preset["data"] for preset in task.presets.values()}
    on_images = task is IMAGES
    others = {TINY, TINY_GPT} - {task.presets["tiny"]["model"]}
    if model and (model.startswith("vit_") != on_images or model in others):
        return False
    if not data or data in presets | {"fake"}:
        return True
    if path.is_file():
        return not on_images
    if on_images:  # a folder that holds a folder per class
        return path.is_dir() and not any(path.glob("*.*"))
    return any(any(path.glob(f"**/*{end}")) for end in texts.KINDS)


def processes(name, args):
    """Return the number of processes to start a script in; None if it starts them itself."""
    devices, plain = scripts.get(name).load().DEVICES, scripts.get(name).plain
    on_gpu = args.accelerator == "cuda"
    if devices == 1 or on_gpu and not plain and not launch.is_emulated():
        return None
    wanted = args.devices or devices
    return min(wanted, torch.cuda.device_count()) if on_gpu else wanted


def measure(args, chosen):
    """Run the chosen scripts that are not measured yet; return all records, none for failures."""
    (args.out / "logs").mkdir(parents=True, exist_ok=True)
    file = args.out / "ladder.jsonl"
    earlier = [] if args.fresh else read(file)[0]
    same = {r.get("fingerprint"): r for r in earlier}
    records, wide = [], max(24, *map(len, chosen))
    for name, settings in chosen.items():
        options = script_options(settings)
        mark = fingerprint(name, options, settings.task)
        if record := same.get(mark):
            print(f"{name:{wide}} measured before, on {record['date']}", flush=True)
            records.append(record)
            continue
        print(f"{name:{wide}} starts", flush=True)
        started = time.perf_counter()
        log = args.out / "logs" / f"{name.replace('/', '_')}.log"
        # Without a real GPU, starting Python anew would take a third of the whole time. (Only on
        # Linux: the system libraries of macOS do not support forks.)
        no_gpu = settings.accelerator == "cpu" or launch.is_emulated()
        context = forks() if no_gpu and sys.platform == "linux" else None
        record, last = run_script(name, options, log, processes(name, settings), context)
        seconds = time.perf_counter() - started
        if record:
            print(f"{name:{wide}} done in {seconds:.0f} s", flush=True)
            record.update(seconds=seconds, fingerprint=mark, ladder=args.command)
            append(file, record)
            records.append(record)
        else:
            print(f"{name:{wide}} FAILED in {seconds:.0f} s: {last}", flush=True)
    return records


def show(args, records, predicted):
    """Print the tables of measurements, beside predictions, and draw the picture."""
    for group in by_model(records):
        print(f"\n{setting(group[0])}\n" + "\n".join(ladder_table.measured(group, predicted)))
    file, picture = args.out / "ladder.jsonl", args.out / "ladder.png"
    bars.draw(records, picture)
    print(f"\n{file}, {picture}: records and picture; {args.out / 'logs'}: output of the scripts")


def main(argv=None):
    p = Parser(description=__doc__.splitlines()[0])
    add_options(p, IMAGES, TEXTS)
    out = "folder for ladder.jsonl, ladder.png and logs/ (default: out)"
    fresh = "measure everything again, including what ladder.jsonl already holds"
    scripts.add_stages(p)
    p.add_argument("--out", type=location, default="out", metavar="DIR", help=out)
    p.add_argument("--fresh", action="store_true", help=fresh)
    one = "the scripts for those who have one GPU: 01 to 07, then other techniques in place of 08"
    p.add_argument("--one-gpu", action="store_true", help=one)
    card = f"emulate {GPUS} GPUs (or --devices N), for computers without one, on Linux:"
    p.add_argument(
        "--card", type=cards.get, metavar="NAME", help=f"{card} {', '.join(cards.CARDS)}"
    )
    args = p.parse_args(argv)
    if args.one_gpu:
        if args.stages or args.further or args.side_roads:
            p.error("--one-gpu names the scripts; leave out the stages and --side-roads")
        args.stages, args.devices = [*ONE_GPU], 1
    if args.card:
        on_emulated(args.card, args, argv)
    args.command = command_of(["-m", "shared", "ladder"], argv)
    names = scripts.selected(args)
    again = "after an interruption, the same command continues from there"
    print(f"- records go to {args.out / 'ladder.jsonl'}; {again}", flush=True)
    chosen = choose(args, names)
    for note in dict.fromkeys(note for options in chosen.values() for note in options.notes):
        print(f"- {note}", flush=True)
    records = measure(args, chosen)
    if records:
        show(args, records, emulated(args, argv))
    if len(records) < len(chosen):
        sys.exit(1)
