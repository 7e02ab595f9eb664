"""Cost of attention layers, counted operation by operation in explicit loops."""

from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.counting import Counter, operations
from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, ones, size, sizes
from regard.derivations.tex_scope import Letter


def _draw_layer(generator: Generator) -> Inputs:
    n, h = size(generator, 1, 5), size(generator, 1, 4)
    x: Float64[Tensor, "n h"] = normal(generator, n, h)
    return Inputs(
        X=x,
        W_q=normal(generator, h, h),
        W_k=normal(generator, h, h),
        W_v=normal(generator, h, h),
        **sizes(n=n, h=h),
    )


def _softmax(c: Counter, scores: Float64[Tensor, "n m"]) -> Float64[Tensor, "n m"]:
    powers = scores.exp()
    return c.scaled(powers, powers.sum(1, keepdim=True))


def self_attention(c: Counter, x: Inputs) -> Float64[Tensor, "n h"]:
    """Return softmax(X W_q (X W_k)ᵀ / √h) X W_v, and count the operations."""
    q, k, v = (c.product(x.X, matrix) for matrix in (x.W_q, x.W_k, x.W_v))
    return c.product(_softmax(c, c.scaled(c.product(q, k.T), x.h.sqrt())), v)


def _part_by_part(x: Inputs) -> Float64[Tensor, ""]:
    """Return the sum of the costs of all parts, counted separately."""
    q, weights = x.X, x.X.new_ones(len(x.X), len(x.X))
    return (
        operations(lambda c: c.product(x.X, x.W_q))
        + operations(lambda c: c.product(x.X, x.W_k))
        + operations(lambda c: c.product(x.X, x.W_v))
        + operations(lambda c: c.product(q, q.T))
        + operations(lambda c: c.scaled(weights, x.h.sqrt()))
        + operations(lambda c: _softmax(c, weights))
        + operations(lambda c: c.product(weights, q))
    )


def _cost(n: Tensor, h: Tensor) -> Float64[Tensor, ""]:
    """Count the operations of a layer of these sizes."""
    shapes = {"X": (n, h), "W_q": (h, h), "W_k": (h, h), "W_v": (h, h)}
    layer = Inputs(ones(shapes), h=h)
    return operations(lambda c: self_attention(c, layer))


ATTENTION_COMPLEXITY = Derivation(
    name="attention-complexity",
    title="Complexity of a self-attention layer",
    given=r"One head on $n$ positions of width $h$: $X \in \mathbb{R}^{n \times h}$, "
    r"$W_q, W_k, W_v \in \mathbb{R}^{h \times h}$, and $A = \mathrm{softmax}\left(\frac{Q "
    r"K^\top}{\sqrt h}\right)$. The cost is the number of multiplications and divisions of the "
    r"explicit loops; the softmax also takes $n^2$ exponentials. There are $n$ weights "
    r"$\alpha_1, \ldots, \alpha_n$ per position; the course counts from 0 to $n$.",
    draw=_draw_layer,
    letters=lambda _: {"cost": _cost},
    steps=(
        Step(r"\mathrm{cost}(n, h)", "Counted while the whole layer runs."),
        Step(
            r"= \mathrm{cost}(X W_q) + \mathrm{cost}(X W_k) + \mathrm{cost}(X W_v) + "
            r"\mathrm{cost}(Q K^\top) + \mathrm{cost}(/ \sqrt h) + \mathrm{cost}(\mathrm{softmax}) "
            r"+ \mathrm{cost}(A V)",
            "Counted part by part.",
            value=_part_by_part,
        ),
        Step(
            r"= 3 \, n h^2 + n^2 h + n^2 + n^2 + n^2 h",
            r"A product of an $n \times m$ and an $m \times p$ matrix takes $n m p$ "
            r"multiplications. Scaling and softmax divide each of $n^2$ entries once.",
        ),
        Step(r"= 3 n h^2 + 2 n^2 (h + 1)", "Collect terms."),
        Step(
            r"\leq 3 n h^2 + 4 n^2 h",
            r"$1 \leq h$. So the cost is $O(n h^2 + n^2 h)$.",
            library=lambda x: 3 * x.n * x.h**2 + 4 * x.n**2 * x.h,
            worst=WorstCase(r"$h = 1$", lambda: Inputs(sizes(n=9, h=1))),
        ),
        Step(
            r"3 n h^2 + 2 n^2 (h + 1)",
            "The same cost from below:",
            library=lambda x: operations(lambda c: self_attention(c, x)),
        ),
        Step(
            r"\geq 2 n^2 h",
            r"The other terms are positive. At test time $h$ is fixed, so that the cost is at "
            r"least quadratic in $n$; by the bound above, it is not more.",
            worst=WorstCase(r"$n \gg h \gg 1$", lambda: Inputs(sizes(n=10**5, h=100))),
        ),
        Step(
            r"4 - \frac{\mathrm{cost}(2n, h)}{\mathrm{cost}(n, h)}",
            "How far the growth of the cost with twice the length is from a factor of 4, counted.",
        ),
        Step(
            r"= 4 - \frac{6 n h^2 + 8 n^2 (h + 1)}{3 n h^2 + 2 n^2 (h + 1)}",
            r"Insert $2n$ and $n$.",
        ),
        Step(
            r"= \frac{6 h^2}{3 h^2 + 2 n (h + 1)}",
            r"Over a common denominator, $8 n^2 (h + 1)$ cancels; divide by $n$.",
        ),
        Step(
            r"\leq \frac{3 h}{n}",
            r"Drop $3 h^2$ from the denominator, and $\frac{h}{h + 1} \leq 1$. So twice the length "
            r"takes four times as long, once $n$ is well above $h$.",
            worst=WorstCase(r"$n \gg h \gg 1$", lambda: Inputs(sizes(n=10**5, h=100))),
        ),
    ),
)


def _draw_sequences(generator: Generator) -> Inputs:
    m, n, k = size(generator, 1, 5), size(generator, 1, 5), size(generator, 1, 4)
    source: Float64[Tensor, "m k"] = normal(generator, m, k)
    target: Float64[Tensor, "n k"] = normal(generator, n, k)
    return Inputs(source=source, target=target, **sizes(M=m, N=n, k=k))


def _scores_and_values(c: Counter, queries: Tensor, memory: Tensor) -> Float64[Tensor, "n k"]:
    """Compute scores of queries and keys, and their products with values."""
    return c.product(c.product(queries, memory.T), memory)


def _causal(c: Counter, sequence: Float64[Tensor, "n k"]) -> None:
    """Compute scores and products without the pairs that a causal mask hides."""
    for i in range(len(sequence)):
        _scores_and_values(c, sequence[i : i + 1], sequence[: i + 1])


def _counted(x: Inputs) -> dict[str, Letter]:
    """Return the costs of encoder, cross- and decoder attention."""
    return {
        "costencoder": operations(lambda c: _scores_and_values(c, x.source, x.source)),
        "costcross": operations(lambda c: _scores_and_values(c, x.target, x.source)),
        "costdecoder": operations(lambda c: _causal(c, x.target)),
    }


THREE_ATTENTIONS = Derivation(
    name="three-attentions",
    title="Complexity of encoder, cross- and decoder attention",
    given=r"An input sequence of length $M$, an output sequence of length $N$, and width $k$. "
    r"Counted are the multiplications of $Q K^\top$ and of the weights with $V$, in explicit "
    r"loops. Projections add $O((M + N) k^2)$, which the course leaves out.",
    draw=_draw_sequences,
    letters=_counted,
    steps=(
        Step(r"\mathrm{cost}_{\mathrm{encoder}}", "Self-attention of the encoder, counted."),
        Step(
            r"= M \cdot M \cdot k + M \cdot M \cdot k",
            r"$M$ queries and $M$ keys: $M^2$ scores of $k$ products each, then $M k$ entries of "
            r"the output, of $M$ products each.",
        ),
        Step(r"= 2 M^2 k", r"$O(M^2 k)$."),
        Step(r"\mathrm{cost}_{\mathrm{cross}}", "Cross-attention, counted."),
        Step(
            r"= N \cdot M \cdot k + N \cdot M \cdot k",
            r"$N$ queries of the output, $M$ keys and values of the input.",
        ),
        Step(r"= 2 M N k", r"$O(M N k)$."),
        Step(
            r"\mathrm{cost}_{\mathrm{decoder}}",
            "Causal self-attention of the decoder, counted without the pairs that the mask hides.",
        ),
        Step(r"= \sum_{i=1}^{N} 2 i k", r"Position $i$ attends to $i$ positions."),
        Step(r"= N (N + 1) k", r"$1 + 2 + \ldots + N = \frac{1}{2} N (N + 1)$."),
        Step(
            r"\leq 2 N^2 k",
            r"$N + 1 \leq 2 N$. So it is $O(N^2 k)$; the mask saves at most half.",
            library=lambda x: 2 * x.N**2 * x.k,
            worst=WorstCase(r"$N = 1$", lambda: Inputs(sizes(N=1, k=3))),
        ),
    ),
)

DERIVATIONS = (ATTENTION_COMPLEXITY, THREE_ATTENTIONS)
