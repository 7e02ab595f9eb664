"""Sliders: results of a study's formula at any values of its parameters, computed in the page."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from regard.book.formulas import FUNCTIONS, evaluate, to_javascript


@dataclass(frozen=True)
class Axis:
    """A parameter and the range of its slider."""

    symbol: str
    """Name in formulas."""
    about: str
    low: float
    high: float
    start: float
    """Initial value."""
    log: bool = False
    """Whether the slider's scale is logarithmic."""
    whole: bool = False
    """Whether the values are integers."""


@dataclass(frozen=True)
class Slider:
    """Parameters, and formulas of the results shown for their values."""

    title: str
    axes: tuple[Axis, ...]
    results: Mapping[str, str]
    """Formulas by label; a label has TeX between dollar signs."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Formulas of common terms of the results, by name."""
    log: bool = False
    """Whether the curves are drawn over a logarithmic scale."""

    def at(self, **values: float) -> list[float]:
        """Return the results for values by symbol; other parameters are at their start."""
        known = {axis.symbol: axis.start for axis in self.axes} | values
        for name, formula in self.terms.items():
            known[name] = evaluate(formula, known)
        return [evaluate(formula, known) for formula in self.results.values()]

    def to_javascript(self) -> str:
        """Return a function from the parameters, in the order of the axes, to the results."""
        symbols = (axis.symbol for axis in self.axes)
        return to_javascript(symbols, self.terms, self.results.values())


SLIDERS: Mapping[str, Slider] = {
    "copying": Slider(
        "Weight of the key with the largest product, all others equal",
        (
            Axis("n", "keys", 2, 1024, 10, log=True, whole=True),
            Axis("m", "margin", 0, 20, 8),
        ),
        {
            "weight of $v_j$": "1 / (1 + (n - 1) * exp(-m))",
            "all others": "(n - 1) * exp(-m) / (1 + (n - 1) * exp(-m))",
        },
    ),
    "averaging": Slider(
        "Weights of one query",
        (
            Axis("n", "keys", 3, 1000, 10, log=True, whole=True),
            Axis("t", "length of the query along each key", 0, 20, 8),
        ),
        {
            "weight of $v_a$ and of $v_b$": "1 / (2 + others)",
            "all others": "others / (2 + others)",
        },
        {"others": "(n - 2) * exp(-t)"},
    ),
    "noisy-keys-one-head": Slider(
        r"Weight of $v_a$ if its key is $\gamma$ times as long",
        (
            Axis("n", "keys", 3, 1000, 10, log=True, whole=True),
            Axis("γ", "factor of $k_a$", 0, 2, 1),
            Axis("t", "length of the query", 0, 20, 8),
            Axis("α", "variance of the keys", 1e-6, 0.1, 1e-3, log=True),
        ),
        {
            "one head": "exp(t * γ) / (exp(t * γ) + exp(t) + n - 2)",
            "one head, noise of $+1$ standard deviation": "up / (up + down + n - 2)",
            "one head, noise of $-1$ standard deviation": "low / (low + high + n - 2)",
            "two heads": "(exp(t * γ) / (exp(t * γ) + n - 1) + 1 / (exp(t) + n - 1)) / 2",
        },
        {
            "up": "exp(t * (γ + sqrt(α)))",
            "down": "exp(t * (1 - sqrt(α)))",
            "low": "exp(t * (γ - sqrt(α)))",
            "high": "exp(t * (1 + sqrt(α)))",
        },
    ),
    "random-heads": Slider(
        "Diagonal weight where $Q = K$",
        (
            Axis("n", "tokens", 2, 512, 20, log=True, whole=True),
            Axis("h", "width of the head", 4, 256, 64, log=True, whole=True),
        ),
        {"own key": "own", "each other key": "(1 - own) / (n - 1)"},
        {
            "m": "sqrt(h) - 1 / 2 - log(n - 1)",
            "s": "sqrt(2) * (1 - 1 / (2 * sqrt(h)))",
            "own": "1 / (1 + exp(-m / sqrt(1 + pi * s ** 2 / 8)))",
        },
    ),
    "scale": Slider(
        "Standard deviation of products of queries and keys",
        (
            Axis("μ", "mean of the entries", -1, 1, 0),
            Axis("h", "width of the head", 1, 1024, 64, log=True, whole=True),
            Axis("σ", "standard deviation of the entries", 0, 2, 1),
        ),
        {
            r"$q \cdot k$": "sqrt(variance)",
            r"$q \cdot k / \sqrt{h}$": "sqrt(variance / h)",
        },
        {"variance": "h * σ ** 4 + 2 * σ ** 2 * h * μ ** 2"},
    ),
    "complexity": Slider(
        "Multiplications of a layer",
        (
            Axis("h", "width", 16, 1024, 64, log=True, whole=True),
            Axis("n", "tokens", 12, 6144, 96, log=True, whole=True),
        ),
        {
            "projections, $3nh^2$": "3 * n * h ** 2",
            "attention, $2n^2h$": "2 * n ** 2 * h",
            "sum": "3 * n * h ** 2 + 2 * n ** 2 * h",
        },
        log=True,
    ),
    "order-of-products": Slider(
        "Multiplications of $Q' K'^\\top V$",
        (
            Axis("m", "features", 1, 1024, 128, log=True, whole=True),
            Axis("L", "tokens", 2, 4096, 1024, log=True, whole=True),
            Axis("d", "width of the values", 1, 1024, 64, log=True, whole=True),
        ),
        {
            "queries and keys first, $L^2(m + d)$": "L ** 2 * (m + d)",
            "keys and values first, $2Lmd$": "2 * L * m * d",
        },
        log=True,
    ),
    "truncation": Slider(
        "Multiplications of $PV$",
        (
            Axis("n", "tokens", 8, 4096, 64, log=True, whole=True),
            Axis("k", "rank", 1, 256, 6, log=True, whole=True),
            Axis("h", "width of the values", 2, 256, 16, log=True, whole=True),
        ),
        {
            "all weights, $n^2h$": "n ** 2 * h",
            "factors of rank $k$, $2nkh$": "2 * n * k * h",
        },
        log=True,
    ),
    "causal-sums": Slider(
        "Numbers in the memory of a head",
        (
            Axis("d", "width of the head", 2, 256, 16, log=True, whole=True),
            Axis("N", "tokens", 1, 16384, 64, log=True, whole=True),
            Axis("m", "features of a key", 2, 1024, 16, log=True, whole=True),
        ),
        {
            "keys and values, $2Nd$": "2 * N * d",
            "$S$ and $Z$, $m(d + 1)$": "m * (d + 1)",
        },
        log=True,
    ),
    "fourier-features": Slider(
        r"Median of $|\hat K - K| / K$ for a pair at the mean distance",
        (
            Axis("m", "waves", 16, 16384, 256, log=True, whole=True),
            Axis("D", "width of queries and keys", 4, 128, 16, log=True, whole=True),
            Axis("r", "fixed norm", 0.5, 4, 2),
        ),
        {
            "entries of unit variance": "noise * sinh(sqrt(D))",
            "fixed norm $r$": "noise * sinh(r ** 2 / sqrt(D))",
        },
        {"noise": "0.6744897501960817 * sqrt(2 / m)"},
        log=True,
    ),
    "favor": Slider(
        "Relative error of the kernel, root mean square",
        (
            Axis("m", "directions", 1, 1024, 8, log=True, whole=True),
            Axis("c", "cosine of $x$ and $y$", -1, 1, 0),
            Axis("r", "length of $x$ and $y$", 0.1, 2.1, 0.5),
        ),
        {
            "trigonometric": "sqrt(exp(a) / (2 * m)) * (1 - exp(-b)) / kernel ** 2",
            "positive": "positive",
            "hyperbolic": "positive * sqrt((1 - exp(-a)) / 2)",
        },
        {
            "a": "2 * r ** 2 * (1 + c)",
            "b": "2 * r ** 2 * (1 - c)",
            "kernel": "exp((a - b) / 4)",
            "positive": "sqrt(exp(a) * (1 - exp(-a)) / m)",
        },
        log=True,
    ),
    "vanishing-and-exploding": Slider(
        "Norm of the gradient, $T$ steps back",
        (
            Axis("ρ", "spectral radius", 0, 2, 0.9),
            Axis("T", "steps", 1, 200, 10, log=True, whole=True),
            Axis("σ", "largest singular value", 0.1, 10, 2, log=True),
        ),
        {
            r"$\rho^T$, least": "ρ ** T",
            r"$\lVert \partial h_T / \partial h_0 \rVert$": (
                "(mixed + sqrt(mixed ** 2 + 4 * ρ ** (2 * T))) / 2"
            ),
            r"$\sigma^T$, most": "largest ** T",
        },
        {
            "largest": "max(ρ, σ)",
            "mixed": "T * ρ ** (T - 1) * (largest - ρ ** 2 / largest)",
        },
        log=True,
    ),
    "relative-bias": Slider(
        "Parameters of a relative bias",
        (
            Axis("m", "heads", 1, 16, 4, whole=True),
            Axis("T", "tokens", 4, 1024, 16, log=True, whole=True),
            Axis("k", "distance at which it is clipped", 1, 128, 4, log=True, whole=True),
        ),
        {
            "each distance, $(2(T - 1) + 1)m$": "(2 * (T - 1) + 1) * m",
            "clipped, $(2k + 1)m$": "(2 * k + 1) * m",
        },
        log=True,
    ),
    "adding": Slider(
        "Size of the terms of a score, $(x_1 + p_1)^\\top (x_2 + p_2)$",
        (
            Axis("σ", "standard deviation of a word's entries", 0.1, 2, 1, log=True),
            Axis("d", "width", 16, 1024, 256, log=True, whole=True),
        ),
        {
            r"$x \cdot x$ of a word with itself": "σ ** 2 * d",
            r"$x_1 \cdot x_2$ of two words": "σ ** 2 * sqrt(d)",
            "cross terms of word and position": "σ * sqrt(d)",
        },
        log=True,
    ),
    "shifting": Slider(
        r"Wavelengths of sinusoidal positions, $\omega_k = b^{-2k/d}$",
        (
            Axis("b", "base", 100, 1e6, 1e4, log=True),
            Axis("d", "width", 4, 512, 64, log=True, whole=True),
        ),
        {
            "shortest, $k$ from 0": "2 * pi",
            "shortest, $k$ from 1": "2 * pi * b ** (2 / d)",
            "longest, $k$ from 0": "2 * pi * b ** (1 - 2 / d)",
            "longest, $k$ from 1": "2 * pi * b",
        },
        log=True,
    ),
    "receptive-field": Slider(
        "Inputs of a node",
        (
            Axis("k", "heads", 1, 8, 2, whole=True),
            Axis("n", "layers", 1, 12, 4, whole=True),
            Axis("N", "inputs", 1, 4096, 100, log=True, whole=True),
        ),
        {
            "paths, $(k + 1)^n$": "(k + 1) ** n",
            "inputs reached by planted pointers": "min((k + 1) ** n, N)",
        },
        log=True,
    ),
}
"""Sliders by study, each with the formula of the study."""


def formula_script(names: Collection[str]) -> str:
    """Return a script that defines FORMULAS: a function for each of these sliders."""
    functions = "".join(
        f'"{name}": {one.to_javascript()},\n' for name, one in SLIDERS.items() if name in names
    )
    return (
        f"const FORMULAS = (({{ {', '.join(FUNCTIONS)}, PI: pi }}) => ({{\n{functions}}}))(Math);\n"
    )
