"""Atomic writes: a file is written whole, or not at all."""

import os


def write_text(path, text):
    """Write a file atomically: a reader sees either the old or the new text, never a part."""
    write_bytes(path, text.encode())


def write_bytes(path, content):
    """Write a file atomically, as write_text() does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder: a file can be renamed at once only within a file system.
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)
