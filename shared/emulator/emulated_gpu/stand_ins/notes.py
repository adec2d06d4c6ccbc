"""Notes on the stand-ins that a program was given, which stand in its report; and their files."""

import functools
import os
import tempfile

made = {}  # {text: "file:line" of the program that asked for it first}


def note(text):
    """Note a stand-in for the line of the program that asks for it, once."""
    from emulated_gpu.inside import reads  # which imports PyTorch, as the program has by now

    made.setdefault(text, reads.line_at_work())


def replace(owner, name, wrapper):
    """Let wrapper(original, *args, **kwargs) stand for owner.name, for the rest of the process."""
    original = getattr(owner, name)

    # A function, since it may be a method; some callers, such as Fabric, inspect its arguments.
    def new(*args, **kwargs):
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, functools.update_wrapper(new, original))


@functools.cache
def folder():
    """Return a folder for files that stand in for others; it is removed when the process ends."""
    # In that of launch.run(), which is removed even if the process is killed.
    return tempfile.TemporaryDirectory(prefix="emulated-", dir=os.environ.get("EMULATED_REPORTS"))


def new_folder():
    """Return the path of a new folder inside of it."""
    return tempfile.mkdtemp(dir=folder().name)
