"""A ladder's folder: it belongs to one ladder at a time, and its records are kept."""

import contextlib
import datetime
import json
import os

from filelock import FileLock, Timeout

from shared.cli import UserError
from shared.common.writing import saying, write_text
from shared.records.record import complete, split
from shared.records.units import one_line

OTHER = "wait until it has ended, or choose another folder"


def readable(file):
    """Returns the records in ladder.jsonl; moves the lines that are none out of the way."""
    known, broken = split(file)
    if broken:
        aside = file.with_suffix(".unreadable")
        print(f"- {len(broken)} unreadable line{'s' * (len(broken) > 1)} moved to {aside}")
        with aside.open("ab") as f:
            f.writelines(line + b"\n" for line in broken)
        write_text(file, "".join(json.dumps(r) + "\n" for r in known))
    return [r for r in known if complete(r)]


@contextlib.contextmanager
def alone(out, command):
    """Locks a ladder's folder, which the system unlocks when this process ends in whatever way.

    Args:
        out: pathlib.Path.
        command: what to tell another ladder that wants the same folder.

    Raises:
        UserError: another ladder has it.
    """
    holder = out / ".ladder.json"
    lock = FileLock(out / ".ladder.lock")
    try:
        with saying(lock.lock_file):
            lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"--out {out} is in use by another ladder{_who(holder)}; {OTHER}") from None
    with lock:
        since = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        write_text(holder, json.dumps({"pid": os.getpid(), "since": since, "command": command}))
        yield


def _who(holder):
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        its = json.loads(holder.read_text())
        command = one_line(str(its["command"]), 200)
        return f" (process {its['pid']}, since {its['since']}: {command})"
    return ""
