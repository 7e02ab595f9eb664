r"""A parser of TeX: turns tokens into a node, a function of the values of indices.

It supports sums, products, fractions, powers and roots of numbers, vectors and matrices; norms and
functions; `\sum`, `\prod`, `\max` and softmax over indices; `\mathbb{E}`, `\mathrm{Var}` and
`\mathrm{Cov}` by quadrature; derivatives as letters; and subscripts.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import torch
from torch import Tensor

from regard.derivations import tex_algebra as algebra
from regard.derivations.counting import OfMatrices
from regard.derivations.tex_algebra import FUNCTIONS, Row, Unsupported, Value
from regard.derivations.tex_names import (
    Frame,
    Means,
    Node,
    items,
    kronecker,
    literal,
    looked_up,
    plain,
    softmax,
)
from regard.derivations.tex_scope import Scope, joint

TOKEN = re.compile(
    r"\\(?:begin|end|mathrm|mathcal|mathbb|mathbf)\{[a-zA-Z]+\}|\\[a-zA-Z]+|\\.|\d+|\S"
)
"""A token of TeX; white space is skipped."""
_SPACES = {r"\,", r"\;", r"\:", r"\!", r"\ ", r"\left", r"\right"}
_ENDS = {")", "}", "]", "+", "-", r"\rVert", r"\cdot", "/", ",", "&", r"\\", r"\end{pmatrix}"}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ACCENTS = {r"\hat", r"\bar", r"\tilde"}
_TERMS = 40
"""Number of terms of an infinite series; later terms are below rounding."""


def tokens(tex: str) -> list[str]:
    r"""Tokenize TeX without spaces and sizes of parentheses; `\|` becomes `\lVert` or `\rVert`."""
    sides = cycle((r"\lVert", r"\rVert"))
    found = (next(sides) if token == r"\|" else token for token in TOKEN.findall(tex))
    return [token for token in found if token not in _SPACES]


def parsed(tex: str, scope: Scope, bound: Sequence[str] = ()) -> tuple[Node, set[str]]:
    """Return the node of TeX, and its free indices.

    Raises:
        Unsupported: the notation or a letter isn't supported.
    """
    parser = Parser(tokens(tex), scope, bound)
    return parser.whole(), parser.free


class Parser:
    """A recursive-descent parser; each method parses one rule of the grammar."""

    def __init__(self, left: list[str], scope: Scope, bound: Sequence[str]) -> None:
        self.left, self.scope, self.bound, self.free = left, scope, [*bound], set[str]()

    def next(self) -> str:
        return self.left[0] if self.left else ""

    def take(self, expected: str = "") -> str:
        if not self.left or (expected and self.left[0] != expected):
            raise Unsupported(f"{self.next() or 'the end'} in place of {expected}")
        return self.left.pop(0)

    @contextmanager
    def binding(self, name: str) -> Iterator[None]:
        """Parse the following tokens with one more bound index."""
        self.bound.append(name)
        yield
        self.bound.pop()

    def whole(self) -> Node:
        """Parse all tokens as a sum."""
        node = self.sum()
        if self.left:
            raise Unsupported(f"{self.left[0]} is left")
        return node

    def sum(self) -> Node:
        node = self.signed("+" if self.next() != "-" else self.take())
        while self.next() in ("+", "-"):
            node = _both(algebra.add, node, self.signed(self.take()))
        return node

    def signed(self, sign: str) -> Node:
        node = self.product()
        minus = algebra.number(-1)
        return node if sign == "+" else lambda frame: algebra.multiply(minus, node(frame))

    def product(self) -> Node:
        node = self.factors()
        while self.next() in (r"\cdot", "/"):
            rule = algebra.divide if self.take() == "/" else algebra.dot
            node = _both(rule, node, self.factors())
        return node

    def factors(self) -> Node:
        """Parse juxtaposed factors."""
        node = self.power()
        while self.left and self.next() not in _ENDS:
            node = _both(algebra.multiply, node, self.power())
        return node

    def power(self) -> Node:
        if self.left[:2] == ["e", "^"]:
            del self.left[:2]
            return _applied(torch.exp, self.group())
        node = self.base()
        while self.next() in ("^", "!"):
            if self.take() == "!":
                node = _applied(lambda x: torch.lgamma(x + 1).exp(), node)
            elif self.next() == r"\top":
                self.take()
                node = _over(algebra.transpose, node)
            else:
                node = _both(algebra.power, node, self.group())
        return node

    def base(self) -> Node:
        inside = {"(": self.parentheses, "[": self.concatenation}
        if self.next() in inside:
            return inside[self.next()]()
        token = self.take()
        rules: dict[str, Callable[[], Node]] = {
            r"\lVert": self.norm,
            r"\frac": self.fraction,
            r"\sqrt": lambda: _applied(torch.sqrt, self.group()),
            r"\sum": lambda: self.over_index(algebra.total),
            r"\prod": lambda: self.over_index(algebra.product),
            r"\max": lambda: self.over_index(_largest),
            r"\begin{pmatrix}": self.matrix,
            r"\mathrm{softmax}": self.softmax,
            r"\mathrm{cost}": self.cost,
            r"\mathbb{E}": lambda: self.moment(_mean),
            r"\mathrm{Var}": lambda: self.moment(_variance),
            r"\mathrm{Cov}": lambda: self.moment(_covariance),
        }
        if token in rules:
            return rules[token]()
        if token in FUNCTIONS:
            return self.function(FUNCTIONS[token])
        if token.isdecimal():
            return _constant(float(token))
        return self.named(self.name(token))

    def group(self) -> Node:
        """Parse the contents of braces, or the next token."""
        if self.next() != "{":
            return self.base()
        return self.enclosed("{")[0]

    def enclosed(self, start: str) -> list[Node]:
        """Parse comma-separated sums between a token and its closing one."""
        self.take(start)
        nodes = [self.sum()]
        while self.next() == ",":
            self.take()
            nodes.append(self.sum())
        self.take(_PAIRS[start])
        return nodes

    def parentheses(self) -> Node:
        """Parse a sum in parentheses, or a list of columns."""
        nodes = self.enclosed("(")
        if len(nodes) == 1:
            return nodes[0]
        return lambda frame: algebra.columns([node(frame) for node in nodes])

    def concatenation(self) -> Node:
        nodes = self.enclosed("[")
        return lambda frame: torch.cat([algebra.entries(node(frame)).view(-1) for node in nodes])

    def norm(self) -> Node:
        node = self.sum()
        self.take(r"\rVert")
        if self.left[:2] == ["_", "F"]:
            del self.left[:2]
        return lambda frame: algebra.entries(node(frame)).square().sum().sqrt()

    def fraction(self) -> Node:
        """Parse a fraction, or a derivative: a letter such as `∂J_/∂o_`, with `_` per index."""
        if self.left[:2] != ["{", r"\partial"]:
            return _both(algebra.divide, self.group(), self.group())
        (top, indices_of_top), (bottom, others) = self.differential(), self.differential()
        return looked_up(f"{top}/{bottom}", [*indices_of_top, *others], self.scope)

    def differential(self) -> tuple[str, list[Node]]:
        self.take("{")
        self.take(r"\partial")
        name, script = self.letter()
        if self.next() == "^":
            self.take()
            script += items([token for token in self.script() if token not in "()"])
        self.take("}")
        index = [self.inner(one) for one in script if self.is_index(one)]
        name += "".join(plain(one[0]) for one in script if not self.is_index(one))
        return f"∂{name}{'_' * len(index)}", index

    def matrix(self) -> Node:
        """Parse a matrix of numbers; a single column is a vector."""
        rows: list[list[Node]] = [[]]
        while True:
            rows[-1].append(self.sum())
            token = self.take()
            if token == r"\\":
                rows.append([])
            elif token == r"\end{pmatrix}":
                break

        def value(frame: Frame) -> Tensor:
            found = [[node(frame) for node in row] for row in rows]
            if any(isinstance(entry, Row) or entry.ndim for row in found for entry in row):
                raise Unsupported("a matrix of vectors")
            made = torch.stack([torch.stack(row) for row in found])  # type: ignore[arg-type]
            return made[:, 0] if made.shape[1] == 1 else made

        return value

    def function(self, function: Callable[[Tensor], Tensor]) -> Node:
        """Parse a function of parentheses, or of the factors up to the next function."""
        exponent = None
        if self.next() == "^":
            self.take()
            exponent = self.group()
        alone, argument = self.next() == "(", self.power()
        while not alone and self.left and self.next() not in {*_ENDS, *FUNCTIONS}:
            argument = _both(algebra.multiply, argument, self.power())
        node = _applied(function, argument)
        return node if exponent is None else _both(algebra.power, node, exponent)

    def over_index(self, rule: Callable[[list[Value]], Value]) -> Node:
        """Parse a sum, product or maximum of the following product over an index."""
        self.take("_")
        index, *bounds = self.script()
        values = self.index_values(index, bounds)
        with self.binding(index):
            body = self.product()
        return lambda frame: rule(
            [body(frame.bind(index, algebra.number(i))) for i in values(frame)]
        )

    def index_values(self, index: str, bounds: list[str]) -> Callable[[Frame], Sequence[int]]:
        """Parse the values of an index: between bounds, without some, from one on, or all."""
        sign, rest = (bounds[0], bounds[1:]) if bounds else ("", [])
        if sign == "=":
            self.take("^")
            first, last = self.inner(rest), self.group()
            return lambda frame: range(
                algebra.integer(first(frame)), algebra.integer(last(frame)) + 1
            )
        if sign == r"\geq":
            return lambda _: range(int(rest[0]), _TERMS)
        every = self.scope.indices.get(index)
        if every is None or sign not in ("", r"\neq"):
            raise Unsupported(f"{index}: no values")
        without = [self.inner(item) for item in items(rest)] if rest else []
        return lambda frame: [
            i for i in every if i not in {algebra.integer(node(frame)) for node in without}
        ]

    def cost(self) -> Node:
        """Parse a cost by name, or the number of operations of an expression in parentheses."""
        if any(name.startswith("cost") for name in self.scope.letters):
            return self.named("cost")
        (node,) = self.enclosed("(")

        def value(frame: Frame) -> Value:
            with OfMatrices() as counter:
                node(frame)
            return algebra.number(counter.count)

        return value

    def softmax(self) -> Node:
        """Parse an entry of a softmax over an index."""
        self.take("_")
        (index,) = self.script()
        every = self.scope.indices.get(index)
        if every is None:
            raise Unsupported(f"{index}: no values")
        place = self.index(index)
        with self.binding(index):
            (body,) = self.enclosed("(")
        return lambda frame: softmax(
            {i: body(frame.bind(index, algebra.number(i))) for i in every},
            algebra.integer(place(frame)),
        )

    def moment(self, rule: Callable[[Scope, list[Node], Frame], Value]) -> Node:
        """Parse an expectation, variance or covariance."""
        nodes = self.enclosed("[")
        return lambda frame: rule(self.scope, nodes, frame)

    def letter(self) -> tuple[str, list[list[str]]]:
        """Parse a letter with the parts of its subscript."""
        return self.name(self.take()), self.subscripts()

    def name(self, token: str) -> str:
        """Return the name of a letter that begins with a token, which may be an accent."""
        return f"{token[1:]} {plain(self.take())}" if token in _ACCENTS else plain(token)

    def subscripts(self) -> list[list[str]]:
        if self.next() != "_":
            return []
        self.take()
        return items(self.script())

    def named(self, name: str) -> Node:
        """Parse an index, an input, an entry of an input, or a function with arguments."""
        while self.next() == "'":
            name += self.take()
        if self.next() != "_" and self.is_index([name]):
            return self.index(name)
        script = self.subscripts()
        if self.left[:3] == ["^", "{", r"\mathrm{pos}"]:
            name += "pos"
            del self.left[:4]
        if name == "delta" and len(script) == 2 and name not in self.scope.letters:
            return kronecker([self.inner(item) for item in script])
        name, used = literal(name, script, self.scope)
        index = [self.inner(item) for item in script[used:]]
        defined = any(one.startswith(f"{name}(") for one in self.scope.defined)
        if self.next() == "(" and (defined or callable(self.scope.letters.get(name))):
            return self.call(name, index)
        if name in self.scope.defined:
            return parsed(self.scope.defined[name], self.scope, self.bound)[0]
        return looked_up(name, index, self.scope)

    def call(self, name: str, index: list[Node]) -> Node:
        """Parse a function with arguments, given by code or by its definition in TeX."""
        arguments = [*index, *self.enclosed("(")]
        function = self.scope.letters.get(name)
        if callable(function):
            return lambda frame: function(*(node(frame) for node in arguments))
        whole = next(one for one in self.scope.defined if one.startswith(f"{name}("))
        parameters = [plain(one) for one in tokens(whole.partition("(")[2]) if one not in ",)"]
        body, _ = parsed(self.scope.defined[whole], self.scope, parameters)

        def value(frame: Frame) -> Value:
            values = [node(frame) for node in arguments]
            return body(Frame(dict(zip(parameters, values, strict=True)), frame.draws))

        return value

    def is_index(self, item: Sequence[str]) -> bool:
        """Return whether a part of a subscript is an index, or computed from indices."""
        return any(
            plain(token) in self.bound or plain(token) in self.scope.indices for token in item
        )

    def index(self, name: str) -> Node:
        """Return the node of an index or argument; record it as free if unbound."""
        if name not in self.bound:
            self.free.add(name)
        return lambda frame: frame.bound[name]

    def inner(self, left: Sequence[str]) -> Node:
        """Return the node of given tokens, such as a subscript."""
        parser = Parser([*left], self.scope, self.bound)
        node = parser.whole()
        self.free |= parser.free
        return node

    def script(self) -> list[str]:
        """Take the tokens of a subscript."""
        if self.next() != "{":
            return [self.take()]
        self.take()
        found, depth = list[str](), 1
        while depth:
            found.append(self.take())
            depth += (found[-1] == "{") - (found[-1] == "}")
        return found[:-1]


def _constant(value: float) -> Node:
    return lambda _: algebra.number(value)


def _applied(function: Callable[[Tensor], Tensor], node: Node) -> Node:
    """Return the node of an elementwise function."""
    return lambda frame: function(algebra.entries(node(frame)))


def _over(rule: Callable[[Value], Value], node: Node) -> Node:
    return lambda frame: rule(node(frame))


def _both(rule: Callable[[Value, Value], Value], a: Node, b: Node) -> Node:
    return lambda frame: rule(a(frame), b(frame))


def _largest(values: list[Value]) -> Value:
    return torch.stack([algebra.entries(value) for value in values]).max()


def _mean(scope: Scope, nodes: list[Node], frame: Frame) -> Value:
    """E[f], over all random variables of f."""
    (f,) = nodes
    means = Means(scope.laws)
    at_mean = f(Frame(frame.bound, means))
    values, weights = joint(means.variables)
    each = torch.vmap(lambda draws: algebra.entries(f(Frame(frame.bound, draws))))
    total = torch.tensordot(weights, each(values), 1) if values else algebra.entries(at_mean)
    return Row(total) if isinstance(at_mean, Row) else total


def _covariance(scope: Scope, nodes: list[Node], frame: Frame) -> Value:
    """E[(f − E[f]) (g − E[g])]."""
    f, g = nodes
    mean_f, mean_g = (algebra.entries(_mean(scope, [node], frame)) for node in nodes)

    def both(at: Frame) -> Value:
        return (algebra.entries(f(at)) - mean_f) * (algebra.entries(g(at)) - mean_g)

    return _mean(scope, [both], frame)


def _variance(scope: Scope, nodes: list[Node], frame: Frame) -> Value:
    return _covariance(scope, nodes * 2, frame)
