"""The source of a script, taken apart and compared line by line."""

import ast
import re
import traceback
from typing import NamedTuple

from shared.lab.records.markdown import num_changed
from shared.lab.records.scripts import read_source
from shared.run.errors import UserError


class Parts(NamedTuple):
    """The parts of a script."""

    functions: list  # names
    constants: dict  # {name: code of its value}
    docstring: str
    lines: list  # below the docstring


def parts(path):
    """Return the Parts of a script.

    Raises:
        UserError: it is not Python.
    """
    try:
        # Bytes, in which Python finds the encoding by itself.
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        where = f"{path.name}, line {getattr(error, 'lineno', None) or 1}"
        raise UserError(f"{where}: {type(error).__name__}: {error.args[0]}") from None
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            constants[ast.unparse(node.targets[0])] = ast.unparse(node.value)
        # A learner may annotate types, which the stages do not.
        elif isinstance(node, ast.AnnAssign) and node.value:
            constants[ast.unparse(node.target)] = ast.unparse(node.value)
    docstring = ast.get_docstring(tree)
    # Learners explain in their own words, so docstrings are not compared.
    start = 0 if docstring is None else tree.body[0].end_lineno
    return Parts(functions, constants, docstring or "", read_source(path).splitlines()[start:])


def num_changed_but_names(before, attempt, reference):
    """Return the number of lines that an attempt changes, and the number that it should.

    A name that only one of attempt and reference uses is the writer's choice. It is blanked out in
    the attempt, so that a renamed variable does not count as a change on each of its lines.
    """
    free = names_in(reference) ^ names_in(attempt)
    actual = num_changed(blanked(before, free), blanked(attempt, free))
    return actual, num_changed(before, reference)


def names_in(lines):
    """Return the set of names and words in lines of code."""
    return {*re.findall(r"[^\W\d]\w*", " ".join(lines))}


def blanked(lines, names):
    """Return lines of code with "_" in place of some names."""
    if not names:
        return lines
    pattern = rf"\b({'|'.join(names)})\b"
    return [re.sub(pattern, "_", line) for line in lines]


def line_of(error, script):
    """Return the number of the last line of a script in the traceback of an error, or None."""
    text = "".join(traceback.format_exception(error))
    lines = re.findall(rf'File "{re.escape(str(script.path))}", line (\d+)', text)
    # The last, since it is the innermost of the script's own calls.
    return int(lines[-1]) if lines else None
