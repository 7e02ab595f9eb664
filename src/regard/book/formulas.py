"""Formulas in the common subset of Python and JavaScript: evaluated in Python, and in a page."""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping

FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "sinh": math.sinh,
    "min": min,
    "max": max,
}
"""Functions of a formula; JavaScript's `Math` has them by the same names."""
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """Return the value of a formula, with a value for each of its names.

    Raises:
        ValueError: a part of the formula is not in the subset.
        KeyError: a name has no value.
    """
    return _evaluate(ast.parse(formula, mode="eval").body, {"pi": math.pi, **values})


def _evaluate(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_evaluate(argument, values) for argument in arguments))
    raise ValueError(f"{ast.unparse(node)}: not in the common subset of Python and JavaScript")


def to_javascript(
    parameters: Iterable[str], terms: Mapping[str, str], results: Iterable[str]
) -> str:
    """Return an arrow function from parameters to the list of results; terms are constants."""
    constants = "".join(f"const {name} = {formula}; " for name, formula in terms.items())
    return f"({', '.join(parameters)}) => {{ {constants}return [{', '.join(results)}]; }}"
