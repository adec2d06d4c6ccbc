"""Compare the emulated GPU with real ones: allocator traces, event by event.

The traces were recorded with torch.cuda.memory, and are in public repositories. events/ has the
actions and sizes of two by a student of Stanford's CS336 (MIT license); record_events.py does the
same tensor operations in our own code. With --folder, the original scripts run, unedited, under the
PyTorch that recorded them.
"""

import datetime
import lzma
import sys
import tempfile
from pathlib import Path

from emulated_gpu import build, launch
from shared.cli import Parser, location
from shared.errors import UserError
from shared.lab.proof.traces import compare_events, unedited
from shared.lab.records import stored
from shared.record import git_commit

HERE = Path(__file__).parent
# The name of each trace is what record_events.py is asked for.
SOURCES = {
    "train-128": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
    "train-512-bf16": "Wedsonlin/assignment2-systems @ 87b0864, PyTorch 2.11",
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
    what, tokens, *precision = name.split("-")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "events.txt")
        options = [what, tokens, *(f"--{kind}" for kind in precision), "--out", out]
        # The emulator is loaded when Python starts, so it takes a new process.
        command = [sys.executable, HERE / "record_events.py", *options]
        try:
            code, _ = launch.run(command, launch.environment())
        except build.BuildError as error:
            raise UserError(str(error)) from None
        if code:
            raise RuntimeError(f"{name}: exit code {code}")
        return out.read_text().splitlines()


def unedited_records(rows, folder):
    """Run third-party scripts, and yield a record of each; failures are printed."""
    groups = {}
    for row in rows:
        # One run may write the snapshots of several rows.
        groups.setdefault(unedited.what_runs(row), []).append(row)
    for group in groups.values():
        try:
            yield from unedited.run(group, folder)
        except (UserError, RuntimeError) as error:
            print(f"{group[0]['name']:28} {error}", flush=True)


def line(r):
    """Return the line that is printed for a record of a third-party script."""
    reserved = "same bytes reserved"
    if r["reserved"] != r["emulated_reserved"]:
        reserved = f"{r['emulated_reserved'] / r['reserved'] - 1:+.2%} reserved"
    verdict = "" if r["verdict"] == "equal" else f" ({r['verdict']})"
    events = f"{r['equal']:,} of {r['events']:,} events equal{verdict}, {reserved}"
    return f"{r['name']:28} {events}; PyTorch {r['torch']}, {r['seconds']:.0f} s"


def compare_here(names):
    """Run record_events.py for each of the stored traces, and print the number of equal events."""
    for name in names:
        expected = real(name)
        events = emulated(name)
        equal = compare_events.equal(expected, events)
        count = f"{equal:,} of {len(expected):,} events equal, {len(events):,} emulated"
        print(f"{name:20} {count}; {SOURCES[name]}")


def run(names, folder):
    """Run third-party scripts, print a line for each, and store the records."""
    common = {"git_commit": git_commit(), "date": datetime.date.today().isoformat()}
    rows = unedited.rows()
    before = stored.read(stored.TRACES) if stored.TRACES.exists() else []
    by_name = {record["name"]: record for record in before}
    for record in unedited_records([row for row in rows if row["name"] in names], folder):
        print(line(record), flush=True)
        by_name[record["name"]] = {**record, **common}
    # In the order of scripts.toml; a row that has gone there goes here, too.
    records = [by_name[row["name"]] for row in rows if row["name"] in by_name]
    stored.write(stored.TRACES, records)


def parse(argv):
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, or all of a word")
    where = (
        "run the scripts of others; their repositories and versions of PyTorch are fetched into "
        "this folder: about 40 GB"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--folder", type=location, metavar="DIR", help=where)
    how.add_argument("--stored", action="store_true", help="print the stored records; run nothing")
    return parser.parse_args(argv)


def chosen(fragments, names):
    """Return the names that contain one of the fragments, all without fragments."""
    for fragment in fragments:
        if not any(fragment in name for name in names):
            raise UserError(f"{fragment} is in none of {', '.join(names)}")
    return [name for name in names if not fragments or any(part in name for part in fragments)]


def main(argv=None):
    args = parse(argv)
    if not (args.folder or args.stored):
        compare_here(chosen(args.names, [*SOURCES]))
        return
    names = chosen(args.names, [row["name"] for row in unedited.rows()])
    if args.folder:
        run(names, args.folder)
        return
    for record in stored.read(stored.TRACES):
        if record["name"] in names:
            print(line(record))
