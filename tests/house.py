"""Size of the code: what each script imports from shared/, all of shared/, and the tests.

Usage: python tests/house.py
"""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Limits on files and lines, of what a script imports (11_llm supports any language model), and on
# lines of parts of the repository. They fall; that of tests rises for a new promise.
OF_SCRIPTS = {"0[1-9]_*/*.py": (13, 1600), "10_*/*.py": (13, 1600)}
OF_SCRIPTS |= {"11_llm/before.py": (15, 1900), "11_llm/train.py": (15, 1900)}
OF_PARTS = {"shared/**/*.py": 11_759, "tests/*.py": 2_492, "tests/**/*.py": 5_972}


@functools.cache
def code(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file):
    """Return the imports from shared/ anywhere in a file, such as "shared.text.cli".

    A name imported from a module counts as a module, too: from shared.text import cli.
    """
    found = []
    for node in ast.walk(code(file)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.relative_to(ROOT)}:{node.lineno}: say where from"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return [name for name in found if name.split(".")[0] == "shared"]


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
    """Return (part, files, lines, limit on files, limit on lines) of all parts."""
    parts = [(f, closure(f), most) for glob, most in OF_SCRIPTS.items() for f in ROOT.glob(glob)]
    rows = [(str(f.relative_to(ROOT)), files, *most) for f, files, most in sorted(parts)]
    rows += [(glob, {*ROOT.glob(glob)}, 999, most) for glob, most in OF_PARTS.items()]
    return [
        (what, len(files), sum(len(f.read_text("utf-8").splitlines()) for f in files), *most)
        for what, files, *most in rows
    ]


if __name__ == "__main__":
    for what, files, lines, *most in table():
        print(f"{what:32} {files:3} files {lines:6,} lines; at most {most[0]}, {most[1]:,}")
