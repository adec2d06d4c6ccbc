"""What a GPU alone can tell, beside the emulated GPU of the same kind: one command, one file.

The memory of every stage, measured beside emulated; the allocator's events of some of them, one by
one; and what is outside of PyTorch's allocator: the CUDA context, NCCL's buffers, and cuDNN's
workspaces. An interrupted command resumes when repeated.
"""

import difflib
import json
import subprocess
import sys

import torch

from shared.cli import Parser, UserError, location
from shared.emulator import cards, launch
from shared.records import scripts
from shared.records.atomic_files import write_text
from shared.records.record import git_commit
from shared.records.views import aligned, by_script, read

TRACED = ("01_baseline/train", "06_sgd/train", "08_fsdp/train")
UPDATES = 10  # of each script: the first three are not timed
HEADING = ("script", "allocated GB", "emulated", "reserved GB", "emulated")


def python(log, *words, variables=None):
    """Run Python with arguments; its output goes to a log.

    Raises:
        UserError: it failed; the last line of its output.
    """
    with log.open("w") as out:
        command = [sys.executable, "-m", *map(str, words)]
        if subprocess.run(command, stdout=out, stderr=out, env=variables).returncode:
            raise UserError(f"{log.read_text(errors='replace').splitlines()[-1]} ({log})")


def traced(name, card, gpus, folder, options):
    """Return how many events of a script are equal, in order, and how many each of two runs has.

    The first run is on this machine's GPU, the second on an emulated one of the same kind.
    """
    events = []
    for where in ("gpu", "emulated"):
        file = folder / f"{name.replace('/', '_')}-{where}.txt"
        words = ["shared.evidence.calibrate.trace", file, name, *options]
        variables = launch.environment(card, gpus) if where == "emulated" else None
        python(file.with_suffix(".log"), *words, variables=variables)
        events.append(file.read_text().splitlines())
    if events[0] == events[1]:
        return (len(events[0]),) * 3
    blocks = difflib.SequenceMatcher(None, *events, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks), *map(len, events)


def rows(measured, emulated):
    """Return the rows of a table of peaks while training, in GB: measured beside emulated."""
    rows = []
    for name, r in measured.items():
        both = [r["train"], emulated[name]["train"]] if name in emulated else []
        peaks = [train[f"device_{key}_gb"] for key in ("peak", "reserved") for train in both]
        rows.append((name, *(f"{gb:.3f}" for gb in peaks)))
    return rows


def main(argv=None):
    parser = Parser(description=__doc__)
    scripts.add_stages(parser)
    out = "folder for all files (default: out/calibrate)"
    parser.add_argument("--out", type=location, default="out/calibrate", metavar="DIR", help=out)
    parser.add_argument("--preset", choices=("tiny", "full"), default="full", help="default: full")
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        emulated = "python -m shared.emulator -m shared.evidence.calibrate --preset tiny"
        raise UserError(f"there is no GPU here; {emulated} tries it without")
    key = cards.key_of_this_machine(torch.cuda.get_device_properties(0))
    if not key:
        raise UserError("this GPU is not in shared/emulator/cards.csv; add a line for it")
    folder = args.out / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    gpus = torch.cuda.device_count()
    python(
        folder / "outside.log", "shared.evidence.calibrate.outside", folder / "outside.json", gpus
    )
    options = ["--preset", args.preset, "--dry-run"]
    ladder = [sys.executable, "-m", "shared.ladder", *args.stages, *options]
    ladder += ["--max-steps", str(UPDATES)]
    if args.side_roads:
        ladder.append("--side-roads")
    subprocess.run([*ladder, "--out", str(args.out)])
    subprocess.run([*ladder, "--out", str(args.out / "emulated"), "--card", key])
    measured, emulated = (
        by_script(read(args.out / file)[0]) for file in ("ladder.jsonl", "emulated/ladder.jsonl")
    )
    events, traced_options = {}, [*options, "--max-steps", "2"]
    for name in (name for name in TRACED if name in measured):
        try:
            events[name] = traced(name, cards.CARDS[key], gpus, folder, traced_options)
        except UserError as error:  # such as a script that does not fit on this GPU
            print(f"- {name}, events: {error}")
    results = {
        "torch": torch.__version__,
        "git_commit": git_commit(),
        "outside": json.loads((folder / "outside.json").read_text()),
        "measured": [*measured.values()],
        "emulated": [*emulated.values()],
        "events": events,
    }
    file = args.out / "measured.json"
    write_text(file, json.dumps(results, indent=1) + "\n")
    print("\n", *aligned(HEADING, rows(measured, emulated)), sep="\n")
    for name, (equal, on_gpu, on_emulated) in events.items():
        print(f"{name}: {equal:,} of {on_gpu:,} events equal, {on_emulated:,} emulated")
    context = results["outside"]["context"]
    print(f"CUDA context: {max(v or 0 for v in context.values()) / 1e9:.2f} GB at most")
    print(f"{file}: all of it, in one file to send")
