"""Evaluates the formulas of the calculator, as the page does in JavaScript."""

import ast
import functools
import math

from shared.report.formulas import MOMENTS, PARTS

FUNCTIONS = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "where": lambda condition, yes, no: yes if condition else no,
}
READ_ALIKE = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Load)
READ_ALIKE += (ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div)
READ_ALIKE += (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq)


@functools.cache
def compiled(expression):
    """Returns an expression as code that Python evaluates.

    Raises:
        ValueError: JavaScript would not read it alike, or it is none.
    """
    tree = ast.parse(expression, mode="eval")
    for node in ast.walk(tree):
        alike = isinstance(node, READ_ALIKE) and len(getattr(node, "ops", "1")) == 1
        if isinstance(node, ast.Call):
            alike = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        if not alike:
            raise ValueError(f"{expression}: JavaScript may not read it alike")
    return compile(tree, expression, "eval")


def evaluate(expression, known):
    """Returns the value of an expression; known: {name: number}."""
    return eval(compiled(expression), {"__builtins__": {}, **FUNCTIONS}, known)


def parts(inputs, formulas=PARTS):
    """Returns the inputs with the values of formulas, {name: number}.

    Args:
        inputs: a number for each of inputs.INPUTS and FEATURES.
        formulas: (name, expression, what it is), in order.
    """
    known = dict(inputs)
    for name, expression, _ in formulas:
        known[name] = evaluate(expression, known)
    return known


def moments(inputs):
    """Returns who holds how much at every moment, (name, {category: bytes}), as in MOMENTS."""
    known, found = parts(inputs), []
    for name, kinds, sets, further, held in MOMENTS:
        if evaluate(kinds, known):
            here = {**known, **{key: evaluate(text, known) for key, text in sets.items()}}
            here = parts(here, further)
            found.append((name, {label: evaluate(text, here) for label, (text, _) in held.items()}))
    return found


def peak(inputs):
    """Returns the moment with the most bytes, as in moments()."""
    return max(moments(inputs), key=lambda moment: sum(moment[1].values()))
