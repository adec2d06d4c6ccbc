"""Run the scripts one after the other, each in its own process, and show what each one saves.

Write ladder.jsonl (a record per script), ladder.png and logs/ into --out. When it is run again, it
continues where it stopped: what was measured before with the same options, code and versions is not
measured again.
"""

import sys
import time
import types
from pathlib import Path

import torch

from emulated_gpu import cards, launch
from shared.images.cli import TASK as IMAGES
from shared.lab.ladder.fingerprint import fingerprint
from shared.lab.predict.jobs import Failed, Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import bars, ladder_table, scripts
from shared.lab.records.formats import learned, size
from shared.lab.records.reading import by_model, by_script, peak, read, setting
from shared.lab.records.running import forks, run_script
from shared.run.cli import Parser, add_options, command_of, keep_apart, location, try_writing
from shared.run.cli import choose as choose_model
from shared.run.devices import check_room
from shared.run.errors import UserError
from shared.run.record import append
from shared.text import data as texts
from shared.text.cli import TASK as TEXTS
from shared.text.models import TINY, TINY_GPT, TINY_MOE, TINY_VLM
from shared.text.roads.captions import TASK as CAPTIONS

GPUS = 4  # at most, of the scripts from 08 on


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
    # As the script's own command line has them, so that a record names a command to repeat.
    return [str(option) for option in options]


def predictions(args, chosen):
    """Return the predictions for GPUs of this machine's kind, {script: record}.

    It is {} without a GPU, or with one that is not known. A failure is printed and not raised, so
    that the measurements are not lost.
    """
    if launch.is_emulated() or not torch.cuda.is_available():
        return {}
    key = cards.key_of_this_machine(torch.cuda.get_device_properties(0))
    if not key:
        return {}
    print("- predicting the same for emulated GPUs, to compare", flush=True)
    # As many as the scripts found here.
    devices = args.devices or min(GPUS, torch.cuda.device_count())
    jobs = prediction_jobs(args, chosen, cards.CARDS[key], devices)
    try:
        return by_script(run_jobs(jobs))
    except Failed as failed:
        print(f"- not all of it ran: {failed}", flush=True)
        return by_script(failed.completed)
    except UserError as error:  # no GPU can be emulated here
        print(f"- nothing is predicted: {error}", flush=True)
        return {}


def prediction_jobs(args, chosen, card, devices):
    """Return the predictions of the chosen scripts, as jobs for run_jobs()."""
    jobs = []
    for name, settings in chosen.items():
        # At full size noise takes the place of the presets' data: it has the same shapes.
        data = settings.data if settings.preset == "tiny" else args.data
        options = ["--data", data] if data else []
        if settings.task.unit == "texts" and args.limit:
            options += ["--limit", str(args.limit)]
        wanted = Wanted(
            preset=settings.preset,
            model=args.model,
            max_length=args.max_length if settings.task.unit == "texts" else None,
            devices=devices,
            trust_remote_code=args.trust_remote_code,
            card=card,
            words=tuple(options),
        )
        jobs.append((predict, scripts.get(name), wanted))
    return jobs


def choose(args, names):
    """Return the scripts to run, {script: its options}, after preparing data and weights.

    These are the named scripts; if names is None, those that --model and --data suit. Data and
    weights are prepared here, once. So an error that every script would make is reported before
    the first one starts, and no script's time includes a download.
    """
    chosen = {}
    prepared = {}  # {task: options with its data and weights}
    wanted = names or scripts.stages()
    if args.side_roads:
        wanted = scripts.with_side_roads(wanted)
    for name in wanted:
        script = scripts.get(name).load()
        task, devices = script.TASK, args.devices or 1
        if name not in (names or ()) and not suits(task, args.model, args.data):
            continue
        if script.DEVICES > 1 and script.BATCH_SIZE % devices and devices < script.BATCH_SIZE:
            batch = f"a batch of {script.BATCH_SIZE} {task.unit}"
            raise UserError(f"{name}: {batch} is not divisible by {devices} devices")
        if task not in prepared:  # once: its scripts share the data and the weights
            prepared[task] = types.SimpleNamespace(**vars(args))
            # As the user wrote it: choose_model() replaces None by what suits the model.
            prepared[task].wanted_length = args.max_length
            choose_model(prepared[task], task)
            # Before anything is downloaded or written.
            keep_apart(prepared[task], args.out)
            task.prepare(prepared[task])
        chosen[name] = prepared[task]
    if not chosen:
        raise UserError(f"no script is for both --model {args.model} and --data {args.data}")
    return chosen


def suits(task, model, data):
    """Return whether --model and --data, where they are given, suit the scripts of a task."""
    path = Path(data or "")
    presets = {preset["data"] for preset in task.presets.values()}
    on_images = task in (IMAGES, CAPTIONS)
    of_other_tasks = {TINY, TINY_GPT, TINY_MOE, TINY_VLM} - {task.presets["tiny"]["model"]}
    # Models for images alone are named so, and none of the language models is.
    if model and (model.startswith("vit_") != (task is IMAGES) or model in of_other_tasks):
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
    script = scripts.get(name)
    devices = script.load().DEVICES
    on_gpu = args.accelerator == "cuda"
    if devices == 1:
        return None
    # On real GPUs, Fabric starts them; a plain.py leaves that to torchrun.
    if on_gpu and not script.plain and not launch.is_emulated():
        return None
    wanted = args.devices or devices
    # More than there are would fail, and a ladder shall run on any machine.
    return min(wanted, torch.cuda.device_count()) if on_gpu else wanted


def measure(args, chosen):
    """Run the chosen scripts that are not measured yet; return all records, none for failures."""
    (args.out / "logs").mkdir(parents=True, exist_ok=True)
    file = args.out / "ladder.jsonl"
    # The file is never emptied, since measurements may have taken hours.
    earlier = [] if args.fresh else read(file)[0]
    measured = {record.get("fingerprint"): record for record in earlier}
    # 24 as in run_script(), whose live line stands in the same place.
    width = max(24, *map(len, chosen))
    records = []
    for name, settings in chosen.items():
        options = script_options(settings)
        # What was measured under the same conditions need not be measured again.
        mark = fingerprint(name, options, settings.task)
        if record := measured.get(mark):
            print(f"{name:{width}} measured before, on {record['date']}", flush=True)
            records.append(record)
            continue
        print(f"{name:{width}} starts", flush=True)
        started = time.perf_counter()
        record, last_line = _run(name, options, args, settings)
        seconds = time.perf_counter() - started
        if not record:
            # The others still run, and a repeated command runs this one again.
            print(f"{name:{width}} FAILED in {seconds:.0f} s: {last_line}", flush=True)
            continue
        figures = f"train peak {size(peak(record))}, test acc. {learned(record)}"
        print(f"{name:{width}} done in {seconds:.0f} s: {figures}", flush=True)
        # Added here: a script knows neither the ladder nor the time of its own start.
        record.update(seconds=seconds, fingerprint=mark, ladder=args.command)
        append(file, record)
        records.append(record)
    return records


def _run(name, options, args, settings):
    """Run a script; return its record, or None, and the last line that it printed."""
    log = args.out / "logs" / f"{name.replace('/', '_')}.log"
    # Without a real GPU, starting Python anew would take a third of the whole time. (Only on
    # Linux: the system libraries of macOS do not support forks.)
    no_gpu = settings.accelerator == "cpu" or launch.is_emulated()
    context = forks() if no_gpu and sys.platform == "linux" else None
    return run_script(name, options, log, processes(name, settings), context)


def show(args, records, predicted):
    """Print the tables of measurements, beside predictions, and draw the picture."""
    for group in by_model(records):
        print(f"\n{setting(group[0])}\n" + "\n".join(ladder_table.measured(group, predicted)))
    file = args.out / "ladder.jsonl"
    picture = args.out / "ladder.png"
    bars.draw(records, picture)
    print(f"\n{file}, {picture}: records and picture; {args.out / 'logs'}: output of the scripts")


def make_parser():
    parser = Parser(description=__doc__.splitlines()[0])
    out = "folder for ladder.jsonl, ladder.png and logs/ (default: out)"
    fresh = "measure everything again, including what ladder.jsonl already holds"
    one = "the scripts for those who have one GPU: 01 to 07, then other techniques in place of 08"
    add_options(parser, IMAGES, TEXTS)
    scripts.add_stages(parser)
    parser.add_argument("--out", type=location, default="out", metavar="DIR", help=out)
    parser.add_argument("--fresh", action="store_true", help=fresh)
    parser.add_argument("--one-gpu", action="store_true", help=one)
    return parser


def main(argv=None):
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.one_gpu:
        if args.stages or args.side_roads:
            parser.error("--one-gpu names the scripts; leave out the stages and --side-roads")
        args.stages = [*scripts.ONE_GPU]
        args.devices = 1
    args.command = command_of(["-m", "shared", "ladder"], argv)
    names = scripts.selected(args)
    try_writing(args.out / "ladder.jsonl")
    again = "after an interruption, the same command continues from there"
    print(f"- records go to {args.out / 'ladder.jsonl'}; {again}", flush=True)
    if args.devices:  # before as many processes start
        check_room(args.devices, torch.cuda.device_count() if torch.cuda.is_available() else None)
    chosen = choose(args, names)
    for note in dict.fromkeys(note for options in chosen.values() for note in options.notes):
        print(f"- {note}", flush=True)
    records = measure(args, chosen)
    if records:
        show(args, records, predictions(args, chosen))
    # For a caller such as a CI job: not all is measured.
    if len(records) < len(chosen):
        sys.exit(1)
