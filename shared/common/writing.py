"""What a user must not lose: files that are whole or not there, and records that are kept."""

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from shared.common.errors import UserError

# What a disk that takes no more says: full, over quota, over a limit for files, broken.
NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
# Libraries that do not raise OSError (torch.save, safetensors, tokenizers) say it in these words.
SAID = re.compile(
    r"PytorchStreamWriter failed|inline_container.*unexpected pos|iostream error"
    r"|os error (28|27|122|5|30)\b"
    r"|(?P<why>No space left on device|Disk quota exceeded|File too large)"
)


class ReaderLeft(BrokenPipeError):
    """What reads the output, such as `head`, has ended."""


def unwritable(error):
    """Returns why a disk takes no more, in a few words, None if an error is about something else.

    Args:
        error: an exception of any kind.
    """
    cause = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_MORE:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    found = SAID.search(str(error))
    return found and (found["why"] or "the disk takes no more")


ADVICE = "choose another place with free space"


@contextlib.contextmanager
def saying(what, advice=ADVICE):
    """Turns an error of what is inside, because something cannot be written, into a UserError.

    Args:
        what: that cannot be written, such as a path.
        advice: what would be right.

    Raises:
        UserError: it cannot be written.
    """
    try:
        yield
    except (UserError, ReaderLeft):
        raise
    except TimeoutError:  # of a lock
        raise
    except OSError as error:
        raise UserError(f"cannot write {what}: {error.strerror or error}; {advice}") from None
    except Exception as error:  # each library has its own for a full disk
        if why := unwritable(error):
            raise UserError(f"cannot write {what}: {why}; {advice}") from None
        raise


@contextlib.contextmanager
def whole(path):
    """Yields the path of a file to write, which then takes the place of another one.

    So that is never half a file: if writing fails or is interrupted, it stays as it was.

    Args:
        path: pathlib.Path, of a file that may be there or not.

    Raises:
        UserError: it cannot be written.
    """
    with saying(path):
        target = Path(os.path.realpath(path))  # of a link, the file itself is replaced
        if target.exists() and not target.is_file():  # a device, or a pipe
            yield target
            return
        # A picture's kind is told by its suffix.
        part = target.with_name(f".part-{secrets.token_hex(4)}{target.suffix}")
        try:
            yield part
            if target.exists():
                shutil.copymode(target, part)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)


def write_text(path, text):
    """Writes a file as a whole, or not at all.

    Raises:
        UserError: it cannot be written.
    """
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def whole_folder(path, advice=ADVICE):
    """Yields an empty folder to write files into, which then take their places in another one.

    So that never has half a file: if writing fails, its files stay as they were.

    Args:
        path: pathlib.Path, of a folder that may be there or not.
        advice: as for saying().

    Raises:
        UserError: it cannot be written.
    """
    with saying(path, advice):
        path.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=path))
        try:
            yield part
            for file in sorted(part.rglob("*")):
                target = path / file.relative_to(part)
                if file.is_dir():
                    target.mkdir(exist_ok=True)
                else:
                    os.replace(file, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def append(path, record):
    """Appends a record to a file, as one line of JSON; if it cannot, prints that line instead.

    It never continues a line that an interrupted program has left incomplete.

    Raises:
        UserError: it cannot be written. It has been printed.
    """
    line = json.dumps(record)
    try:
        _append(path, f"{line}\n".encode())
    except OSError as error:
        _print_somewhere(line)
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; what was measured is printed above, "
            "as the line that belongs into it"
        ) from None


def _append(path, data):
    # Without a reader, opening a pipe would wait forever.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
    try:
        os.set_blocking(file, True)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.write(file, data)
            return
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        if _is_torn(path, size):
            data = b"\n" + data
        try:
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)  # some disks tell only now that they are full
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _is_torn(path, size):
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")
    return False


def _print_somewhere(line):
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            print(line, file=stream, flush=True)
            if not getattr(stream, "failed", None):
                return


def room(folder, megabytes=1):
    """Makes sure that a folder's disk has room for some more, before hours are spent.

    Raises:
        UserError: it has not.
    """
    with saying(folder), tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(megabytes * 10**6))
        file.flush()
        os.fsync(file.fileno())


def replaceable(path, option=None):
    """Makes sure that a file can be written as a whole, before hours are spent on its contents.

    Args:
        path: pathlib.Path; its folder is made.
        option: that names it, such as "--out", for the message.

    Raises:
        UserError: it cannot.
    """
    named = f"{option} {path}" if option else path
    if path.is_dir():
        raise UserError(f"{named} is a folder; choose the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not path.exists() or path.is_file():
            tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent).close()
    except OSError as error:
        raise UserError(f"cannot write {named}: {error.strerror}; choose another file") from None


class Patient:
    """A stream such as stdout, whose failure does not end what may have taken hours.

    What cannot be written, because a disk is full, is dropped. A reader that has left does end it,
    as in other programs.
    """

    def __init__(self, stream):
        self.stream, self.failed = stream, None

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        with self._patiently():
            return self.stream.write(text)
        return len(text)

    def flush(self):
        with self._patiently():
            self.stream.flush()

    @contextlib.contextmanager
    def _patiently(self):
        try:
            yield
        except BrokenPipeError:
            raise ReaderLeft from None
        except OSError as error:
            self.failed = error.strerror


def standard_streams():
    """Opens what of stdin, stdout and stderr is closed, as nothing.

    Otherwise the next file that is opened would take its place, and get what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the smallest number that is free
            os.set_inheritable(number, True)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            stream = open(number, "w", errors="backslashreplace", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
