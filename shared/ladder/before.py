"""What was measured before: what need not be measured again, and how long the rest will take."""

import contextlib
import hashlib
import json
import os
import platform

import torch
from filelock import FileLock, Timeout

from shared.cli import UserError
from shared.records import scripts
from shared.records.record import ROOT, versions
from shared.records.views import setting

ROOMS = ("memory", "images", "text", "records")  # what stages import, and what runs them


def fingerprint(name, options, task, on=None):
    """Returns a hash of what a measurement depends on: options, code, versions, machine.

    Args:
        name: of the script.
        options: its command line.
        task: what it is about, such as images.cli.TASK.
        on: list of texts that tell the machine; None for what this one calls itself.
    """
    shared = ROOT / "shared"
    code = [file for room in ROOMS for file in sorted((shared / room).glob("*.py"))]
    files = [scripts.get(name).path, *sorted(shared.glob("*.py")), *code]
    machine = on or [platform.node(), os.cpu_count(), torch.cuda.device_count()]
    return digest(files, json.dumps([options, machine, versions(task, name)]).encode())


def digest(files, *parts):
    """Returns a hash of bytes, and of what is in files."""
    return hashlib.sha256(b"".join([*parts, *(f.read_bytes() for f in files)])).hexdigest()[:16]


@contextlib.contextmanager
def alone(out):
    """Locks a folder, which the system unlocks when this process ends in whatever way.

    Raises:
        UserError: another ladder has it.
    """
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / ".ladder.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"--out {out} is in use by another ladder; choose another one") from None
    with lock:
        yield


class Expectation:
    """Estimates how long scripts are going to take, from how long they took before.

    The scripts that have run here show how much faster or slower this machine is than another one.
    """

    def __init__(self, known):
        """Takes in records of earlier measurements; the later ones count."""
        whole = [r for r in known if r["epochs"] == 1 and "--max-steps" not in r["command"]]
        self.before = {self._key(r): r.get("seconds") for r in whole}
        self.here = self.there = 0.0

    @staticmethod
    def _key(record):
        return record["script"], setting(record), record["dataset"]

    def of(self, name, args):
        """Returns about how many seconds a script took before; None if that is not known."""
        wanted = {"script": name, "dataset": args.dataset, "model": args.model}
        whole = args.epochs == 1 and not args.max_steps
        return self.before.get(self._key({**wanted, **args.task.settings(args)})) if whole else None

    def now(self, before):
        """Returns how many seconds it is going to take here."""
        return before * (self.here / self.there if self.there else 1)

    def took(self, before, seconds):
        """Takes in how long a script took before (None if unknown), and now."""
        if before:
            self.here, self.there = self.here + seconds, self.there + before
