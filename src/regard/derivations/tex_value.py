r"""The value of a line of TeX, read from the TeX itself.

It supports arithmetic on the inputs of a derivation: sums, products, fractions, powers, roots,
norms, `\exp` as a power of e, `\ln`, `\sin`, `\cos`, `\Phi`, sums with bounds, and subscripts that
name an input (`x_1`) or an entry (`\mu_i`). What is defined in words raises `Unsupported`.
"""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

TOKEN = re.compile(
    r"\\(?:begin|end|mathrm)\{[a-zA-Z]+\}|\\[a-zA-Z]+|\\.|\d+|[a-zA-Z]|[-+*/^_=(){}\[\],|'&]"
)
"""A token of TeX; white space is none."""
_RELATION = re.compile(r"\\(?:leq|geq|approx)\b|=(?![^{]*\})")
_SPACES = {r"\,", r"\;", r"\:", r"\!", r"\ ", r"\left", r"\right"}
_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    r"\sin": torch.sin,
    r"\cos": torch.cos,
    r"\ln": torch.log,
    r"\Phi": torch.special.ndtr,
}
_ENDS = {")", "}", "]", "+", "-", r"\rVert", r"\cdot", "/", ",", "&", r"\\", r"\end{pmatrix}"}


class Unsupported(ValueError):
    """A line that isn't arithmetic on the inputs."""


def last_side(tex: str) -> slice:
    """Return where the last side of a line stands, without conditions behind a comma."""
    end = tex.find(r", \quad")
    body = tex[:end] if end >= 0 else tex
    starts = [found.end() for found in _RELATION.finditer(body)]
    return slice(starts[-1] if starts else 0, len(body))


def tex_value(tex: str, letters: Mapping[str, Tensor]) -> Tensor:
    """Return the value of the last side of a line, without conditions behind a comma.

    `letters` are those of `Derivation.values`: the inputs, without underscores in their names.

    Raises:
        Unsupported: the line is more than arithmetic on these letters.
    """
    tokens = [token for token in TOKEN.findall(tex[last_side(tex)]) if token not in _SPACES]
    reader = _Reader(tokens, letters)
    try:
        value = reader.sum()
    except (RuntimeError, IndexError) as error:
        raise Unsupported(f"{tex}: {error}") from None
    if reader.left:
        raise Unsupported(f"{tex}: {reader.left[0]}")
    return value


class _Reader:
    """A recursive reader of tokens; each method reads one rule of the grammar."""

    def __init__(self, tokens: list[str], names: Mapping[str, Tensor]) -> None:
        self.left, self.names = tokens[:], names
        self.bound: dict[str, int] = {}
        self.first: dict[str, int] = {}

    def next(self) -> str:
        return self.left[0] if self.left else ""

    def take(self, expected: str = "") -> str:
        if not self.left or (expected and self.left[0] != expected):
            raise Unsupported(f"{self.next() or 'the end'} in place of {expected}")
        return self.left.pop(0)

    def sum(self) -> Tensor:
        sign = -1 if self.next() == "-" else 1
        if sign < 0:
            self.take()
        total = sign * self.product()
        while self.next() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            total = total + sign * self.product()
        return total

    def product(self) -> Tensor:
        value = self.factors()
        while self.next() in (r"\cdot", "/"):
            if self.take() == "/":
                value = value / self.factors()
            else:
                other = self.factors()
                value = value @ other if value.ndim == other.ndim == 1 else value * other
        return value

    def factors(self) -> Tensor:
        """Factors side by side; of matrices, their product."""
        value = self.power()
        while self.left and self.next() not in _ENDS:
            other = self.power()
            if value.ndim == 1 and other.ndim:
                raise Unsupported("a vector with a vector or matrix behind it")
            value = value @ other if value.ndim and other.ndim else value * other
        return value

    def power(self) -> Tensor:
        if self.next() == "e" and self.left[1:2] == ["^"]:
            self.take()
            self.take("^")
            return self.group().exp()
        base = self.base()
        if self.next() != "^":
            return base
        self.take()
        if self.next() == r"\top":
            self.take()
            if base.ndim != 2:
                raise Unsupported("a transposed vector")
            return base.T
        if base.ndim:
            raise Unsupported("a power of a vector or matrix")
        return base ** self.group()

    def base(self) -> Tensor:
        token = self.take()
        rules: dict[str, Callable[[], Tensor]] = {
            "(": lambda: self.enclosed(")"),
            r"\lVert": lambda: self.enclosed(r"\rVert").square().sum().sqrt(),
            r"\frac": lambda: self.group() / self.group(),
            r"\sqrt": lambda: self.group().sqrt(),
            r"\sum": self.sum_over,
            r"\begin{pmatrix}": self.matrix,
            r"\hat": lambda: self.named("hat " + self.take()),
        }
        if token in rules:
            return rules[token]()
        if token in _FUNCTIONS:
            return self.function(_FUNCTIONS[token])
        if token.isdecimal():
            return torch.tensor(float(token), dtype=torch.float64)
        return self.named(token.removeprefix(r"\mathrm{").strip("\\}"))

    def enclosed(self, end: str) -> Tensor:
        value = self.sum()
        self.take(end)
        return value

    def matrix(self) -> Tensor:
        """A matrix of numbers; one of a single column is a vector."""
        rows: list[list[Tensor]] = [[]]
        while True:
            rows[-1].append(self.sum())
            token = self.take()
            if token == r"\\":
                rows.append([])
            elif token == r"\end{pmatrix}":
                break
        if any(entry.ndim for row in rows for entry in row):
            raise Unsupported("a matrix for each of several values")
        made = torch.stack([torch.stack(row) for row in rows])
        return made[:, 0] if made.shape[1] == 1 else made

    def group(self) -> Tensor:
        """What stands in braces, or the next token."""
        if self.next() != "{":
            return self.base()
        self.take()
        value = self.sum()
        self.take("}")
        return value

    def function(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of what stands in parentheses, or of the factors up to the next function."""
        power = None
        if self.next() == "^":
            self.take()
            power = self.group()
        alone, argument = self.next() == "(", self.power()
        while not alone and self.left and self.next() not in {*_ENDS, *_FUNCTIONS}:
            argument = argument * self.power()
        value = function(argument)
        return value if power is None else value**power

    def sum_over(self) -> Tensor:
        """A sum from an integer to another, over the factors behind it."""
        self.take("_")
        self.take("{")
        index = self.take()
        self.take("=")
        first = self.sum()
        self.take("}")
        self.take("^")
        last, body = self.group(), self.left
        if first.ndim or last.ndim:
            raise Unsupported("a bound that isn't a number")
        self.first[index] = min(int(first), 1)  # entries count from 0 if the sum does
        terms = []
        for value in range(int(first), int(last) + 1):
            self.left, self.bound[index] = body[:], value
            terms.append(self.factors())
        if not terms:
            raise Unsupported("an empty sum")
        del self.bound[index]
        return torch.stack(terms).sum(0)

    def named(self, name: str) -> Tensor:
        """An input, an entry of one, or the index of a sum."""
        while self.next() == "'":
            name += self.take()
        if self.next() != "_":
            if name in self.bound:
                return torch.tensor(float(self.bound[name]), dtype=torch.float64)
            return self.input(name)
        self.take()
        script = self.script()
        entries = [self.bound[i] - self.first[i] for i in script if i in self.bound]
        value = self.input(name + "".join(one for one in script if one not in self.bound))
        if len(entries) > value.ndim:
            raise Unsupported(f"{name}: too many subscripts")
        return value[tuple(entries)] if entries else value

    def input(self, name: str) -> Tensor:
        if name not in self.names:
            raise Unsupported(f"{name}: isn't an input")
        return self.names[name].double()

    def script(self) -> list[str]:
        """The tokens of a subscript."""
        if self.next() != "{":
            return [self.take()]
        self.take()
        tokens = []
        while self.next() != "}":
            tokens.append(self.take())
        self.take("}")
        return tokens
