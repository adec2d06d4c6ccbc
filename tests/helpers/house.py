"""The files of this repository that a file imports, directly or indirectly."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def code(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file):
    """Return the imports from this repository anywhere in a file, such as "shared.text.cli".

    A name imported from a module counts as a module, too: from shared.text import cli.
    """
    found = []
    for node in ast.walk(code(file)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.relative_to(ROOT)}:{node.lineno}: say where from"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return [name for name in found if name.split(".")[0] in ("shared", "emulated_gpu", "proof")]


def closure(script):
    """Return the files with more than a docstring that a file imports, directly or indirectly."""
    found, left = set(), [script]
    while left:
        for name in imported(left.pop()):
            path = ROOT / name.replace(".", "/")
            within = [p for p in (path, *path.parents) if ROOT in p.parents]
            files = {f for p in within for f in (p.with_suffix(".py"), p / "__init__.py")} - found
            new = [file for file in files if file.exists() and len(code(file).body) > 1]
            found.update(new)
            left += new
    return found
