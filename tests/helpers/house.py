"""Size of the code: the files of shared/ that each script imports, directly or indirectly.

Usage: python tests/helpers/house.py
"""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Limits on files and on lines in them. 11_llm supports any language model.
OF_SCRIPTS = {
    "0[1-9]_*/*.py": (16, 1900),
    "10_*/*.py": (16, 1900),
    "11_llm/before.py": (20, 2250),
    "11_llm/train.py": (20, 2250),
}


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


def table():
    """Return (script, files, lines, limit on files, limit on lines) of all scripts with a limit."""
    rows = {}  # the limits of a script itself replace those of its folder
    for glob, limits in OF_SCRIPTS.items():
        for script in sorted(ROOT.glob(glob)):
            files = closure(script)
            lines = sum(len(file.read_text("utf-8").splitlines()) for file in files)
            name = str(script.relative_to(ROOT))
            rows[name] = name, len(files), lines, *limits
    return [*rows.values()]


if __name__ == "__main__":
    for script, files, lines, *most in table():
        print(f"{script:32} {files:3} files {lines:6,} lines; at most {most[0]}, {most[1]:,}")
