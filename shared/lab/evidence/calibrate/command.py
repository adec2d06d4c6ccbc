"""Measure memory and time of every script on a GPU, in some twenty minutes and one file.

One process imports everything; each run is a fork of it. Memory is measured side by side, time
with nothing beside it. A command that was interrupted resumes when it is repeated. --compare
emulates what a file has measured, here or elsewhere.
"""

import json
import lzma
import os
import time

import torch

from shared.lab.evidence.calibrate import compare, files, measure
from shared.lab.evidence.calibrate.runs import GROUPS, LARGE_GB, every, of_record
from shared.lab.predict.jobs import Failed, run_jobs
from shared.lab.records import scripts, stored
from shared.lab.records.atomic_files import write_bytes, write_text
from shared.lab.records.formats import aligned
from shared.run.cli import Parser, location, try_writing
from shared.run.errors import UserError
from shared.run.record import git_commit

LARGEST_GB = 55  # reserved by the largest script, with what a process needs beside it
WORKERS = 10  # more processes would wait for the host


def known_large():
    """Return the scripts that need more than LARGE_GB, by their stored predictions."""
    groups = stored.STAGES, stored.SIDE_ROADS
    reserved = {r["script"]: r["train"]["device_reserved_gb"] for r in stored.predicted(*groups)}
    # A plain.py has no record, but allocates what its train.py does.
    plain = {
        f"{name.partition('/')[0]}/plain": gb for name, gb in reserved.items() if "/train" in name
    }
    return {name for name, gb in {**reserved, **plain}.items() if gb > LARGE_GB}


def workers(group, gb):
    """Return the number of runs of a group that go side by side on a GPU with `gb` GB."""
    if group == "memory, large":
        return max(1, int(gb // LARGEST_GB))
    # Small runs: as many as fit beside each other, and have a core each.
    if group in ("memory", "tiny"):
        return max(1, min(WORKERS, len(os.sched_getaffinity(0)), int(gb // LARGE_GB)))
    return 1  # time depends on what else the GPU does


def measure_all(names, file):
    """Measure scripts on this machine's GPU; runs that the file has already are not repeated."""
    machine_file = file.with_suffix(".machine")
    machine_file.unlink(missing_ok=True)
    # In a process of its own: one that has used the GPU could not be forked for the runs.
    run_jobs([(measure.machine, machine_file)], emulated=None)
    machine, _ = files.read(machine_file)
    lines = []
    if file.exists():
        before, lines = files.read(file)
        if differences := [key for key in files.IDENTITY if before[key] != machine[key]]:
            different = differences[0]
            raise UserError(f"{file} is of another {different}; choose another folder with --out")
    # Anew, without a last line that an interruption has cut.
    write_text(file, "".join(json.dumps(line) + "\n" for line in (machine, *lines)))
    done = {of_record(r) for r in lines}
    gb = machine["bytes"] / 1e9
    waiting = [run for run in every(names, known_large()) if run not in done]
    for group in GROUPS:
        runs = [run for run in waiting if run.group == group]
        if not runs:
            continue
        started = time.monotonic()
        num_failed = 0
        print(f"- {group}: {len(runs)} runs", flush=True)
        try:
            jobs = [(measure.measured, run, file) for run in runs]
            run_jobs(jobs, emulated=None, workers=workers(group, gb))
        except Failed as error:
            num_failed = error.failed
            # The others are measured; the next call repeats those that failed.
            print(*(f"  {reason}" for reason in error.reasons), sep="\n", flush=True)
        seconds = time.monotonic() - started
        print(f"  {len(runs) - num_failed} measured, {seconds:.0f} s", flush=True)


def parse(argv):
    parser = Parser(description=__doc__)
    scripts.add_stages(parser)
    out = "folder for all files (default: out/calibrate)"
    parser.add_argument("--out", type=location, default="out/calibrate", metavar="DIR", help=out)
    which = "emulate what FILE has measured, under the versions that it names, and compare"
    parser.add_argument("--compare", metavar="FILE", type=location, help=which)
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    try_writing(args.out / "measured.jsonl")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.compare:
        return compare_file(args.compare, args.out)
    if not torch.cuda.is_available():
        emulated = "python -m emulated_gpu -m shared calibrate 06"
        raise UserError(f"there is no GPU here; {emulated} tries it without")
    names = scripts.selected(args) or [*scripts.stages(), *scripts.side_roads(), *scripts.plain()]
    if args.side_roads:
        names = scripts.with_side_roads(names)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a look at the GPU would spoil it for forks
    lines = args.out / "measured.jsonl"
    compressed = args.out / "measured.jsonl.xz"
    measure_all(names, lines)
    write_bytes(compressed, lzma.compress(lines.read_bytes(), preset=9))
    print(f"{compressed}: all of it, in one file to send")
    print(f"python -m shared calibrate --compare {compressed}: emulates the same")


def compare_file(file, folder):
    """Emulate the runs of a file; store the comparison, and print it as a table."""
    if not file.exists():
        raise UserError(f"--compare: there is no file {file}")
    try:
        machine, measured = files.read(file)
    except ValueError as error:
        raise UserError(f"--compare: {error}") from None
    compare.check_versions(machine)
    emulated = compare.emulate(machine, measured, folder)
    compared = compare.summary(measured, emulated)
    header = {
        "card": compare.card_of(machine),
        "versions": files.versions(),
        "git_commit": git_commit(),
        "command": f"python -m shared calibrate --compare {file.name}",
        "date": time.strftime("%Y-%m-%d"),
    }
    into = folder / f"{file.name.partition('.')[0]}-emulated.jsonl.xz"
    timed = compare.times(machine, measured)
    stored.write(into, [header, *compared, *timed])
    print("", *aligned(compare.HEADING, compare.rows(compared)), sep="\n")
    if timed:
        print("", *aligned(compare.TIMES, compare.time_rows(timed)), sep="\n")
    print(f"{into}: the comparison")
