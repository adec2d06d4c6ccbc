"""Hold the emulated GPU to real ones: allocator traces, event by event.

Strangers recorded them with torch.cuda.memory on GPUs of their own, and put them into public
repositories. events/ has the actions and sizes of four by students of Stanford's CS336 (MIT
license); record.py does the same tensor operations in our own words. With --folder, the strangers'
scripts run, unedited, under the PyTorch that they have used.
"""

import datetime
import lzma
import tempfile
from pathlib import Path

from emulated_gpu import launch
from emulated_gpu.build import BuildError
from shared.cli import Parser, UserError, location
from shared.lab.evidence.traces import compare, unedited
from shared.lab.records import stored
from shared.record import git_commit

HERE = Path(__file__).parent
# The name of each trace is what record.py is asked for.
SOURCES = {
    "2025-train-100": "NiuHuangxiaozi/assignment2-systems @ 9d868b9, PyTorch 2.6",
    "2025-train-200-bf16": "NiuHuangxiaozi/assignment2-systems @ 9d868b9, PyTorch 2.6",
    "2026-train-128": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
    "2026-train-512-bf16": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
}


def real(name):
    """Return the events of a real GPU: "a SIZE" (alloc), "f" (free), "S", "R" (of segments)."""
    with lzma.open(HERE / "events" / f"{name}.txt.xz", "rt") as file:
        return file.read().splitlines()


def emulated(name):
    """Return the events of the same work on an emulated GPU.

    Raises:
        UserError: this machine lacks something.
        RuntimeError: the program failed.
    """
    year, what, tokens, *precision = name.split("-")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "events.txt")
        options = [year, what, tokens, *(f"--{kind}" for kind in precision), "--out", out]
        command = launch.python(HERE / "record.py", options)
        try:
            code, _ = launch.run(command, launch.environment())
        except BuildError as error:
            raise UserError(str(error)) from None
        if code:
            raise RuntimeError(f"{name}: exit code {code}")
        return out.read_text().splitlines()


def unedited_records(chosen, folder):
    """Run the scripts of strangers, and yield a record of each; what fails is printed."""
    groups = {}
    for row in chosen:
        groups.setdefault(unedited.what_runs(row), []).append(row)
    for group in groups.values():
        try:
            yield from unedited.run(group, folder)
        except (UserError, RuntimeError) as error:
            print(f"{group[0]['name']:28} {error}", flush=True)


def line(record):
    """Return the line that is printed for a script of others."""
    r = record
    reserved = "same bytes reserved"
    if r["reserved"] != r["emulated_reserved"]:
        reserved = f"{r['emulated_reserved'] / r['reserved'] - 1:+.2%} reserved"
    words = "" if r["verdict"] == "equal" else f" ({r['verdict']})"
    events = f"{r['equal']:,} of {r['events']:,} events equal{words}, {reserved}"
    return f"{r['name']:28} {events}; PyTorch {r['torch']}, {r['seconds']:.0f} s"


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, or all of a word")
    where = (
        "run the scripts of others; their repositories and versions of PyTorch are fetched into "
    )
    where += "this folder: about 40 GB"
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--folder", type=location, metavar="DIR", help=where)
    how.add_argument("--stored", action="store_true", help="print the stored records; run nothing")
    args = parser.parse_args(argv)
    theirs = args.folder or args.stored
    known = [row["name"] for row in unedited.rows()] if theirs else [*SOURCES]
    chosen = [n for n in known if not args.names or any(word in n for word in args.names)]
    if unknown := [word for word in args.names if not any(word in name for name in known)]:
        raise UserError(f"{unknown[0]} is in none of {', '.join(known)}")
    if args.stored:
        every = stored.read(stored.TRACES)
        print(*(line(r) for r in every if r["name"] in chosen), sep="\n")
        return
    if not args.folder:
        for name in chosen:
            there, here = real(name), emulated(name)
            same = f"{compare.equal(there, here):,} of {len(there):,} events equal"
            print(f"{name:20} {same}, {len(here):,} emulated; {SOURCES[name]}")
        return
    records = []
    common = {"git_commit": git_commit(), "date": datetime.date.today().isoformat()}
    for record in unedited_records(
        [r for r in unedited.rows() if r["name"] in chosen], args.folder
    ):
        records.append({**record, **common})
        print(line(record), flush=True)
    kept = stored.read(stored.TRACES) if stored.TRACES.exists() else []
    by_name = {r["name"]: r for r in (*kept, *records)}
    every = [by_name[row["name"]] for row in unedited.rows() if row["name"] in by_name]
    stored.write(stored.TRACES, every)
