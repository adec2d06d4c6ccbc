"""Compare the memory of a program under two Pythons, such as two versions of PyTorch.

Both run it on the same emulated card. The lines that hold memory at the peak are compared, from
PyTorch 2.9 on with the types of their tensors, and from which types these were cast. In a package
that also has another version, the numbers of lines may differ.

  emulated-gpu compare --python old/bin/python --python new/bin/python --card l4 train.py
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from emulated_gpu import launch, peak, programs
from emulated_gpu.texts import KINDS, Parser, amount, columns

VERSION = "from importlib.metadata import version; print(version('torch'))"
MOST = 12  # lines of the program that are shown
LEAST = 1_000_000  # bytes: what differs by less is not shown


def main(argv):
    """Run the command; return its exit code: 0, 2 for a mistake, or that of the program."""
    pythons, words = parse(argv)
    answers = []
    for python in pythons:
        code, answer = run(python, words)
        if code:
            return code
        answers.append(answer)
    print("\n".join(table(*answers)))
    return 0


def parse(argv):
    """Return two paths of a Python, and the words for `emulated-gpu run`."""
    parser = Parser(
        prog="emulated-gpu compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="emulated-gpu compare --python OLD --python NEW [OPTION OF run...] SCRIPT [ITS...]",
    )
    if "--help" in argv[:1] or "-h" in argv[:1]:
        parser.print_help()
        sys.exit(0)
    # Not by argparse, which would take options of the program for these.
    pythons = []
    while argv[:1] == ["--python"]:
        pythons += argv[1:2]
        argv = argv[2:]
    if len(pythons) != 2 or not argv:
        parser.error("name two Pythons, then a script: --python OLD --python NEW train.py")
    for python in pythons:
        if not shutil.which(python):
            parser.error(f"--python {python}: there is no such program")
    return pythons, argv


def run(python, words):
    """Run a program under a Python.

    Returns:
        (exit code, None), or (0, (the version of torch, [Peak], AtPeak)).
    """
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        # The other environment may lack this package, and must not find its neighbors in a folder.
        alone = Path(folder, "path")
        alone.mkdir()
        (alone / "emulated_gpu").symlink_to(Path(__file__).parent)
        env = {**os.environ, "PYTHONPATH": launch.before("PYTHONPATH", alone)}
        asked = subprocess.run([python, "-c", VERSION], env=env, capture_output=True, text=True)
        if asked.returncode:
            print(f"\nemulated-gpu: --python {python} has no PyTorch", file=sys.stderr)
            return 2, None
        report, snapshot = Path(folder, "peaks.json"), Path(folder, "snapshot.pickle")
        options = ["run", "--json", report, "--snapshot", snapshot]
        # The words of `run` may be wrong, too, and it says how.
        code = subprocess.run([python, "-m", "emulated_gpu", *options, *words], env=env).returncode
        if code:
            return code, None
        if not report.exists():
            print(f"\nemulated-gpu: --python {python} is no Python", file=sys.stderr)
            return 2, None
        peaks = programs.peaks(json.loads(report.read_text()))
        if not peaks:
            print("\nemulated-gpu: nothing was allocated on a GPU", file=sys.stderr)
            return 2, None
        return 0, (asked.stdout.strip(), peaks, peak.read(snapshot))


def table(old, new):
    """Return two answers of run() side by side, as lines of text."""
    rows = [("", f"torch {old[0]}", f"torch {new[0]}", "change")]
    for kind in KINDS:
        # The largest, of several GPUs.
        sizes = [max(getattr(p, kind) for p in answer[1]) for answer in (old, new)]
        rows.append((kind, *_compared(*sizes)))
    # By type, too, which PyTorch tells from 2.9 on.
    typed = all(at.typed.keys() - at.held.keys() for *_, at in (old, new))
    before, after = (at.typed if typed else at.held for *_, at in (old, new))
    changes = {line: after.get(line, 0) - before.get(line, 0) for line in {**before, **after}}
    grown = sorted(changes, key=lambda line: -abs(changes[line]))
    shown = [line for line in grown if abs(changes[line]) >= LEAST][:MOST]
    for line in shown:
        rows.append((line, *_compared(before.get(line, 0), after.get(line, 0))))
    lines = columns(rows)
    if shown:
        lines.insert(1 + len(KINDS), "lines that hold more or less at the peak:")
    return lines


def _compared(old, new):
    """Return two sizes in bytes and their difference, as texts."""
    sign = "-" if new < old else "+"
    return amount(old), amount(new), sign + amount(abs(new - old)) if new != old else "the same"
