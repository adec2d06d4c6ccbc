"""How much code there is: what a script imports of shared/, shared/ in all, the tests.

Usage: python tests/house.py
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lines(files):
    """Returns how many lines files have together."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def closure(script, found=None):
    """Returns the files of shared/ that a file imports, and that these import."""
    found = set() if found is None else found
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "shared":
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for file in (ROOT / f"{name.replace('.', '/')}.py" for name in names):
                if file.exists() and file not in found:
                    found.add(file)
                    closure(file, found)
    return found


def table():
    """Returns (what, files, lines) of the parts that are to stay small."""
    parts = {
        "01_baseline/train.py imports": closure(ROOT / "01_baseline/train.py"),
        "11_llm/train.py imports": closure(ROOT / "11_llm/train.py"),
        "shared/": [*ROOT.glob("shared/**/*.py")],
        "tests/, without tests/long": [*ROOT.glob("tests/*.py")],
        "tests in all": [*ROOT.glob("tests/**/*.py")],
    }
    return [(what, len(files), lines(files)) for what, files in parts.items()]


if __name__ == "__main__":
    for what, files, n in table():
        print(f"{what:32} {files:3} files {n:6,} lines")
