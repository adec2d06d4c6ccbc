"""Promise: the first line of a docstring is a phrase or a statement, not an indirect question."""

import ast
import re

from conftest import ROOT
from helpers.house import code

from shared.lab.records import scripts

FOLDERS = (scripts.FOLDER, "shared/**", "tests/**")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# "Whether x is y" is no statement: "Return whether x is y" is.
QUESTION = re.compile(r"(What|Whatever|Which|Who|Whoever|Whether|How|Why)\b")
# At the end of a line, such a word stands for a noun that the reader has to find. The idioms "one
# after the other" and "each other", and names in `code`, do not.
WITHOUT_NOUN = re.compile(r"(?<!after the )(?<!each )\b(its|ones?|others?|another)[\s.,;:!?)\"']*$")


def first_lines(tree):
    """Yield (line number, first line) of each docstring in a module."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring.partition("\n")[0]


def fault(line):
    """Return what is wrong with the first line of a docstring, None if nothing is."""
    if found := QUESTION.match(line):
        return f"begins with {found[1]}: name the result, or say what is done"
    if found := WITHOUT_NOUN.search(line):
        return f"ends in {found[1]}: name the noun"
    return None


def test_docstrings_begin_with_a_statement():
    faults = []
    count = 0
    for file in sorted(file for folder in FOLDERS for file in ROOT.glob(f"{folder}/*.py")):
        for number, line in first_lines(code(file)):
            count += 1
            if reason := fault(line):
                faults.append(f"{file.relative_to(ROOT)}:{number}: {reason}: {line}")
    assert count > 1000  # the files were found
    assert not faults, "\n".join(faults)
