"""Errors that end a script, which are shown as the script's own, without this package's frames."""

import socket
import sys
import traceback
from pathlib import Path

from emulated_gpu.texts import UserError
from emulated_gpu.why.source import OURS
from emulated_gpu.why.trace import Trace

NOT_ITS = OURS, "<frozen runpy>"  # files that run the script
UNREACHED = ConnectionError, TimeoutError, socket.gaierror


def trace_of(run):
    """Return the Trace of a Run; raise a UserError if it has used no GPU."""
    name = run.source.file.name
    if not run.watch.places:
        raise UserError(f"{name}: nothing ran on the GPU; does it train on cuda?")
    trace = Trace(run.watch)
    if not trace.events:
        raise UserError(f"{name}: nothing was allocated on a GPU; is .cuda() missing?")
    return trace


def handle(run, error):
    """Handle an exception that ended a Run, other than a lack of memory: return if the run counts.

    It does if the script has made its updates before.

    Raises:
        SystemExit: as the script ended itself, 1 after an error.
        UserError: a download failed, or the error is one.
        KeyboardInterrupt: Ctrl-C, before anything ran on the GPU.
    """
    if isinstance(error, KeyboardInterrupt):
        if not run.watch.places:
            raise error
        # What was seen until then is shown: an update that never ends may have told enough.
        run.limits.stopped = f"{line_of(run.source, error)}, by Ctrl-C"
        return
    if isinstance(error, UserError):  # of this package
        raise error
    is_exit = isinstance(error, SystemExit)
    if is_exit and error.code in (None, 0) and run.watch.places:
        return
    updates = run.updates.count
    where = line_of(run.source, error)
    if updates >= run.limits.watched:
        # Its updates are known. The error may be of a prediction, which gives it a few batches.
        run.limits.stopped = f"{where}, after update {updates}, by {type(error).__name__}"
        if not isinstance(error, StopIteration):  # which next() raises when the data ends
            print(traceback_of(run.source, error), end="", file=sys.stderr)
        return
    if is_exit:
        raise error
    if any(isinstance(each, UNREACHED) for each in _causes(error)):
        first_line = str(error).strip().partition("\n")[0][:300]
        reason = f"{type(error).__name__}: {first_line}"
        raise UserError(f"{where}: not reached, download it first: {reason}") from None
    print(traceback_of(run.source, error), end="", file=sys.stderr)
    sys.exit(1)


def line_of(source, error):
    """Return the line of a Source at which an exception was raised, as FILE:LINE."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if source.contains(frame.filename)]
    if not lines:
        return source.file.name
    return f"{Path(lines[-1].filename).name}:{lines[-1].lineno}"


def traceback_of(source, error):
    """Return an exception's traceback from the script's first frame on, without our frames."""
    shown = traceback.TracebackException.from_exception(error)
    each = shown
    while each:
        frames = [frame for frame in each.stack if not frame.filename.startswith(NOT_ITS)]
        of_script = (i for i, frame in enumerate(frames) if source.contains(frame.filename))
        each.stack = traceback.StackSummary.from_list(frames[next(of_script, 0) :])
        each = each.__cause__ or each.__context__
    return "".join(shown.format())


def _causes(error):
    """Yield an exception, and the exceptions that led to it."""
    while error:
        yield error
        error = error.__cause__ or error.__context__
