"""Counts of what there is in this repository; .ci/house.toml has the most that there may be.

Usage: python tests/helpers/gauge.py
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMITS = ROOT / ".ci" / "house.toml"
LAB = ROOT / "shared" / "lab"
EMULATOR = ROOT / "shared" / "emulator"
RESULTS = LAB / "evidence" / "results", EMULATOR / "proof" / "results"
IN_HEART = "*", "images/**/*", "text/*", "memory/**/*", "run/*"
ROOMS = {  # the lines of code of each; a folder of the lab with code is a room of its own
    "heart": [f for files in IN_HEART for f in ROOT.glob(f"shared/{files}.py")],
    "roads": [*ROOT.glob("shared/text/roads/*.py")],
    **{f"lab_{f.name}": [*f.glob("**/*.py")] for f in LAB.iterdir() if any(f.glob("**/*.py"))},
    "emulator": [*EMULATOR.glob("emulated_gpu/**/*.py")],
    "emulator_proof": [*EMULATOR.glob("proof/**/*.py")],
    "emulator_c": [*EMULATOR.glob("**/*.[ch]")],
    "tests": [*ROOT.glob("tests/**/*.py"), *EMULATOR.glob("tests/**/*.py")],
}
# Who imports one of these, starts processes, and collects what they found.
STARTING = {"subprocess", "multiprocessing", "concurrent"}


def trees():
    """Yield the parsed code of each file of shared/ in Python, but for tests."""
    for file in sorted({*ROOT.glob("shared/**/*.py")} - {*ROOMS["tests"]}):
        yield ast.parse(file.read_text("utf-8"))


def called(node):
    """Return the name of the function that a node of parsed code calls, "" if none."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def commands():
    """Return the number of words after `python -m shared` and after `emulated-gpu`."""
    sys.path.insert(0, str(ROOT))
    from shared.__main__ import COMMANDS

    text = (EMULATOR / "emulated_gpu" / "command.py").read_text()
    words = [word for section in COMMANDS.values() for word in section]
    return len(words) + len(re.findall(r'\bwords\[:1\] == \["', text))


def options(tree):
    """Return the number of options that code adds to parsers."""
    adding = ("add", "add_argument")
    calls = [node for node in ast.walk(tree) if called(node) in adding and node.args]
    return sum(ast.unparse(call.args[0]).lstrip("f").startswith("'--") for call in calls)


def writes_table(code):
    """Return whether a function writes a table by hand: its heading, its lines, or in Markdown.

    A table of Columns is none; the functions that write these are. Constants are data.
    """
    texts = (ast.JoinedStr, ast.Starred)
    for node in ast.walk(code) if isinstance(code, (ast.FunctionDef, ast.ClassDef)) else ():
        row = getattr(node.elts[0], "elts", ()) if isinstance(node, ast.List) and node.elts else ()
        are_texts = (isinstance(e, texts) or type(getattr(e, "value", 0)) is str for e in row)
        if len(row) > 1 and all(are_texts):
            return True
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "heading":
            return True
        if called(node) in ("aligned", "columns") or "---|" in str(getattr(node, "value", "")):
            return True
    return False


def starts_processes(tree):
    """Return whether code imports one of STARTING."""
    names = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
    }
    return any(name and name.split(".")[0] in STARTING for name in names)


def counted():
    """Return the counts, {name: number}."""
    parsed = [*trees()]
    pages = (LAB / "lessons" / "pages.py").read_text()
    results = [file for folder in RESULTS for file in folder.iterdir()]
    lines = {
        f"lines_{room}": sum(len(file.read_text("utf-8").splitlines()) for file in files)
        for room, files in ROOMS.items()
    }
    return {
        "commands": commands(),
        "options": sum(map(options, parsed)),
        "generated_parts": len(re.findall(r'^    "\w+": \w+\.\w+,$', pages, re.MULTILINE)),
        "tables": sum(writes_table(code) for tree in parsed for code in tree.body),
        "record_formats": len({"".join(file.suffixes) for file in results} - {".png"}),
        "engines": sum(map(starts_processes, parsed)),
        **lines,
    }


def limits():
    """Return the most that there may be, {name: number}."""
    return tomllib.loads(LIMITS.read_text())


if __name__ == "__main__":
    most = limits()
    for name, number in counted().items():
        print(f"{name:20} {number:6,}, at most {most.get(name, 0):6,}")
