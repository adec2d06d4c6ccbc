"""Files and folders: those that are written once for all processes, and those that a user names."""

import os
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


def written_once(path, make):
    """Writes make(), a state dict, to a file, if the file is not there yet.

    The other processes of a training wait for it.

    Returns:
        the path.

    Raises:
        UserError: it cannot be written, or make() raises one.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                part = path.with_suffix(".part")  # so that the file itself is never incomplete
                torch.save(make(), part)
                os.replace(part, path)
    except UserError:
        raise
    except OSError as error:
        raise cannot_cache(path, error) from None
    return path


def cannot_cache(path, error):
    """Returns the UserError for a file or folder of the cache that cannot be written."""
    why = error.strerror or error
    return UserError(f"cannot write {path} ({why}); set TORCH_HOME to a folder with free space")


def holds_texts(what):
    """Tells whether --data names texts: a file, or a folder with tables or text files in it."""
    path = Path(what)
    patterns = ("*.csv", "*.jsonl", "*/*.txt", "train/*/*.txt")
    return path.is_file() or any(file for pattern in patterns for file in path.glob(pattern))


def stamps(files):
    """Returns what tells whether files have changed: their paths, sizes and times."""
    found = [(str(f.resolve()), f.stat()) for f in files]
    return sorted((path, stat.st_size, stat.st_mtime_ns) for path, stat in found)


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
