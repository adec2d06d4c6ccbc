"""Files and folders: those that are written once for all processes, and those that a user names."""

import contextlib
import glob
import os
import shutil
import stat
import tempfile
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

import torch
from filelock import FileLock

from shared.common.errors import UserError

# What a download raises without a network, or when it breaks off.
OFFLINE = (URLError, ConnectionError, TimeoutError, HTTPException)


def cache_folder():
    """Returns the folder for what can be made or fetched again: TORCH_HOME, or torch's default."""
    return Path(torch.hub.get_dir()).parent / "memory-ladder"


_usable = {}  # what was found usable or written: {path: its mark}


def written_once(path, make, wrong):
    """Writes make(), a state dict, to a file, if the file is not there yet or of no use.

    The other processes of a training wait for it. A file is looked at once per process, and again
    when it has changed. What is there instead of it, or is damaged, is replaced, which is said in
    one line.

    Args:
        path: pathlib.Path.
        make: function without arguments.
        wrong: function that gets the path of a regular file, and says what is wrong with it; None
            if nothing is.

    Returns:
        the path.

    Raises:
        UserError: it cannot be written, or make() raises one.
    """
    # Fabric's ModelParallelStrategy (lightning 2.6.6) does not pass on load_raw()'s weights_only.
    # With this variable, torch.load() would then run code that a file brings with it.
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    if path in _usable and _usable[path] == _mark(path):
        return path
    try:
        if _wrong(path, wrong):
            path.parent.mkdir(parents=True, exist_ok=True)
            with lock(f"{path}.lock"):
                why = _wrong(path, wrong)  # another process may have written it meanwhile
                if why and os.path.lexists(path):
                    print(f"- {path} {why}: it is made again", flush=True)
                if why:
                    _write(path, make())
        _usable[path] = _mark(path)
    except UserError:
        raise
    except OSError as error:
        raise cannot_cache(path, error) from None
    return path


def lock(path):
    """Returns a FileLock on a file of this name, which removes what is there and is no file."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            shutil.rmtree(path)
        elif not stat.S_ISREG(mode):
            os.unlink(path)
    return FileLock(path)


def remove(path):
    """Removes a folder with all that is in it, or whatever else is there, or nothing."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _mark(path):
    """Returns what tells whether a file was changed or replaced; None if it is not there."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _wrong(path, wrong):
    if not os.path.lexists(path):
        return "is missing"
    if os.path.isfile(path):
        return wrong(path)
    if os.path.isdir(path):
        return "is a folder"
    return "is no file" if os.path.exists(path) else "is a link that leads nowhere"


def _write(path, state):
    part = path.with_suffix(".part")  # so that the file itself is never incomplete
    remove(part)
    try:
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if path.is_dir():
            remove(path)
        os.replace(part, path)
    except RuntimeError as error:  # torch.save() hides the OSError of a full disk
        cause = error.__context__
        raise cause if isinstance(cause, OSError) else OSError(str(error).splitlines()[0]) from None
    finally:
        remove(part)


def cannot_cache(path, error):
    """Returns the UserError for a file or folder of the cache that cannot be written."""
    why = error.strerror or error
    return UserError(f"cannot write {path} ({why}); set TORCH_HOME to a folder with free space")


def holds_texts(what):
    """Tells whether --data names texts: a file, or a folder with tables or text files in it."""
    return os.path.isfile(what) or any(os.path.isfile(file) for file in _texts(what))


def _texts(what):
    """Yields the tables and text files of a folder where --data takes them from."""
    what = os.fspath(what)
    if os.path.isdir(what):
        for pattern in ("*.csv", "*.jsonl", "*/*.txt", "train/*/*.txt", "test/*/*.txt"):
            # Path.glob() would raise an error for a folder that is gone meanwhile, as in /proc.
            found = glob.iglob(os.path.join(glob.escape(what), pattern), include_hidden=True)
            yield from map(Path, found)


def data_files(what):
    """Returns the files that --data names: a file itself, a folder's texts or pictures, or none."""
    if not os.path.isdir(what):
        return [Path(what)] if os.path.isfile(what) else []
    if holds_texts(what):
        return list(_texts(what))
    parts = [Path(what, part) for part in ("train", "test") if os.path.isdir(Path(what, part))]
    return [file for folder in parts or [Path(what)] for file in folder.rglob("*")]


def stamps(files):
    """Returns what tells whether files have changed: their paths, sizes and times.

    A link that leads nowhere has neither.
    """
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            at = file.stat()
            found.append((os.path.realpath(file), at.st_size, at.st_mtime_ns))
            continue
        found.append((str(file), -1, -1))
    return sorted(found)


def writable(path):
    """Makes sure that a file can be appended to, before hours are spent on its contents.

    Raises:
        UserError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a reader, opening a pipe would wait forever.
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another file") from None


def writable_folder(path, option):
    """Makes a folder, and makes sure that it can be written into.

    Args:
        path: pathlib.Path.
        option: what to call it when it cannot, such as "--out".

    Raises:
        UserError: it cannot.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror}; choose another folder") from None
