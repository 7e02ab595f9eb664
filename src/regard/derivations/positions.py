"""Positions: added, concatenated, as a bias, and shifted by a matrix."""

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step
from regard.derivations.draws import normal, size, sizes
from regard.derivations.tex_scope import FromZero, Letter, Normal

_BASE = 10_000.0


def _draw_embeddings(generator: Generator) -> Inputs:
    d = size(generator, 1, 5)
    x1, p1, x2, p2 = normal(generator, 4, d)
    return Inputs(x1=x1, p1=p1, x2=x2, p2=p2, **sizes(d=d))


CONCATENATION = Derivation(
    name="concatenation",
    title="Positions added or concatenated",
    given=r"Word embeddings $x_1, x_2 \in \mathbb{R}^d$ and position embeddings $p_1, p_2 \in "
    r"\mathbb{R}^d$. Queries and keys are $z$ itself: $z_i = x_i + p_i$ or $z_i = [x_i, p_i]$.",
    draw=_draw_embeddings,
    laws=lambda x: {"x1": Normal(torch.zeros_like(x.x1), 1.0, 3)},
    steps=(
        Step(r"(x_1 + p_1) \cdot (x_2 + p_2)", "The product if positions are added."),
        Step(r"= \sum_{e=1}^{d} (x_{1e} + p_{1e}) (x_{2e} + p_{2e})", "Entry by entry."),
        Step(
            r"= \sum_{e=1}^{d} \left( x_{1e} x_{2e} + x_{1e} p_{2e} + p_{1e} x_{2e} + "
            r"p_{1e} p_{2e} \right)",
            "Multiply out.",
        ),
        Step(
            r"= x_1 \cdot x_2 + x_1 \cdot p_2 + p_1 \cdot x_2 + p_1 \cdot p_2",
            "Four terms: the two in the middle compare words with positions.",
        ),
        Step(
            r"[x_1, p_1] \cdot [x_2, p_2]",
            r"The product if positions are concatenated, to vectors of width $2d$.",
        ),
        Step(
            r"= \sum_{e=1}^{d} x_{1e} x_{2e} + \sum_{e=1}^{d} p_{1e} p_{2e}",
            r"The first $d$ entries are of words, the others of positions.",
        ),
        Step(
            r"= x_1 \cdot x_2 + p_1 \cdot p_2",
            "Two terms: words with words, positions with positions.",
        ),
        Step(
            r"\mathbb{E}\left[ (x_1 \cdot p_2)^2 \right]",
            r"The size of a cross term if entries of $x_1$ are independent, with mean 0 and "
            "variance 1. Evaluated by quadrature.",
        ),
        Step(
            r"= \sum_{e=1}^{d} \sum_{f=1}^{d} p_{2e} \, p_{2f} \, \mathbb{E}\left[ x_{1e} x_{1f} "
            r"\right]",
            "Square the sum.",
        ),
        Step(
            r"= \lVert p_2 \rVert^2",
            r"$\mathbb{E}[x_{1e} x_{1f}] = \delta_{ef}$. As $\lVert x_1 \rVert^2$ is $d$ on "
            r"average, the cosine is about $1 / \sqrt d$: cross terms are small at first, but "
            "training can change that.",
        ),
    ),
)


def _draw_relative(generator: Generator) -> Inputs:
    n, d, d_pos = size(generator, 1, 5), size(generator, 1, 4), size(generator, 1, 3)
    q: Float64[Tensor, "n d"] = normal(generator, n, d)
    q_pos: Float64[Tensor, "n d_pos"] = normal(generator, n, d_pos)
    context, heads = size(generator, 1, 6), size(generator, 1, 4)
    return Inputs(
        q=q,
        k=normal(generator, n, d),
        v=normal(generator, n, d),
        q_pos=q_pos,
        k_pos=normal(generator, n, d_pos),
        **sizes(T=context, m=heads, clip=size(generator, 0, context - 1)),
    )


def _distances(x: Inputs, of: Callable[[int], int]) -> Float64[Tensor, ""]:
    """Number of different values `of(i − j)` over all pairs, for m heads."""
    context = int(x.T)
    found = {
        (head, of(i - j))
        for head in range(int(x.m))
        for i in range(context)
        for j in range(context)
    }
    return x.m.new_tensor(len(found))


def _clipped(x: Inputs, distance: int) -> int:
    return max(-int(x.clip), min(int(x.clip), distance))


def _letters(x: Inputs) -> dict[str, Letter]:
    """The bias, the weights of attention, and k: keys `k_j`, and the largest distance."""
    bias = x.q_pos @ x.k_pos.T
    weights = (x.q @ x.k.T + bias).softmax(1)
    return {"pi": bias, "alpha": weights, "k": lambda *j: x.k[j[0] - 1] if j else x.clip}


RELATIVE_BIAS = Derivation(
    name="relative-bias",
    title="A bias that equals concatenated positions",
    given=r"Queries $q_i$, keys $k_j$ and values $v_j$ of words, and position vectors "
    r"$q_i^{\mathrm{pos}}$, $k_j^{\mathrm{pos}}$. Scores are not scaled, as in the course. Its "
    r"last formula there has $v_i$ for $v_j$ and leaves out the normalization; both are corrected "
    r"here. For the count, $T$ is the context length and $m$ the number of heads.",
    draw=_draw_relative,
    letters=_letters,
    indices=lambda x: dict.fromkeys("ijl", range(1, len(x.q) + 1)),
    steps=(
        Step(
            r"\alpha_{ij} = \mathrm{softmax}_j \left( [q_i, q_i^{\mathrm{pos}}] \cdot "
            r"[k_j, k_j^{\mathrm{pos}}] \right)",
            "Attention with positions concatenated to queries and keys.",
        ),
        Step(
            r"= \mathrm{softmax}_j \left( q_i \cdot k_j + q_i^{\mathrm{pos}} \cdot "
            r"k_j^{\mathrm{pos}} \right)",
            "The product of concatenated vectors has two terms.",
        ),
        Step(
            r"= \frac{e^{q_i \cdot k_j + \pi_{ij}}}{\sum_l e^{q_i \cdot k_l + \pi_{il}}}, \quad "
            r"\pi_{ij} = q_i^{\mathrm{pos}} \cdot k_j^{\mathrm{pos}}",
            r"Call the second term $\pi_{ij}$: it is the bias that was asked for.",
        ),
        Step(
            r"= \frac{e^{\pi_{ij}} \, e^{q_i \cdot k_j}}{\sum_l e^{\pi_{il}} \, e^{q_i \cdot k_l}}",
            r"The bias is a factor $e^{\pi_{ij}}$ of each weight before the normalization.",
        ),
        Step(r"a_i = \sum_j \alpha_{ij} v_j", "The output."),
        Step(
            r"= \frac{\sum_j e^{\pi_{ij}} \, e^{q_i \cdot k_j} \, v_j}{\sum_j e^{\pi_{ij}} \, "
            r"e^{q_i \cdot k_j}}",
            r"Insert the weights. Without the denominator, as in the course, they would not sum "
            "to 1.",
        ),
        Step(
            r"\left| \left\{ (\mathrm{head}, i - j) \right\} \right|, \quad 1 \leq i, j \leq T",
            r"Parameters if $\pi_{ij}$ depends on $i - j$ only, one per head and distance. Counted "
            "over all pairs.",
            value=lambda x: _distances(x, lambda distance: distance),
        ),
        Step(r"= (2 (T - 1) + 1) \, m", r"$i - j$ runs from $-(T - 1)$ to $T - 1$."),
        Step(
            r"\left| \left\{ (\mathrm{head}, \mathrm{clip}(i - j, -k, k)) \right\} \right|, "
            r"\quad 1 \leq i, j \leq T, \quad k < T",
            r"The same with distances clipped at $k$. Counted over all pairs.",
            value=lambda x: _distances(x, lambda distance: _clipped(x, distance)),
        ),
        Step(r"= (2 k + 1) \, m", r"Clipped distances run from $-k$ to $k$."),
    ),
)


def _draw_position(generator: Generator) -> Inputs:
    pairs = size(generator, 1, 6)
    omega: Float64[Tensor, " pairs"] = _BASE ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    return Inputs(
        omega=omega, **sizes(t=size(generator, 0, 200), s=size(generator, 1, 50), d=2 * pairs)
    )


def _pair(x: Inputs, t: Tensor) -> Float64[Tensor, "pairs 2"]:
    """(sin ω_k t, cos ω_k t) for each k."""
    return torch.stack([(x.omega * t).sin(), (x.omega * t).cos()], 1)


def _rotation(angle: Float64[Tensor, " pairs"]) -> Float64[Tensor, "pairs 2 2"]:
    """((cos a, sin a), (−sin a, cos a)) for each angle."""
    rows = [torch.stack([angle.cos(), angle.sin()], 1), torch.stack([-angle.sin(), angle.cos()], 1)]
    return torch.stack(rows, 1)


def _position_letters(x: Inputs) -> dict[str, Letter]:
    """Frequencies and rotations from k = 0, M with all of these, and positions p_0 to p_(t+s)."""
    positions = torch.stack(
        [_pair(x, place).flatten() for place in torch.arange(int(x.t + x.s) + 2)]
    )
    rotations = _rotation(x.omega)
    return {
        "omega": FromZero(x.omega),
        "m": FromZero(rotations),
        "M": torch.block_diag(*rotations),
        "p": FromZero(positions),
    }


SHIFT_MATRIX = Derivation(
    name="shift-matrix",
    title="The matrix that shifts a sinusoidal position",
    given=r"Position $t$ has the vector $p_t \in \mathbb{R}^d$ with the pairs $(\sin \omega_k t, "
    r"\cos \omega_k t)$, where $\omega_k = 10000^{-2k/d}$ and $k = 0, \ldots, \frac{d}{2} - 1$. "
    "Frequencies vary with $k$, not with the position as one of the courses writes. Lines with "
    "$k$ are checked for every pair.",
    draw=_draw_position,
    letters=_position_letters,
    indices=lambda x: {"k": range(len(x.omega))},
    steps=(
        Step(
            r"\begin{pmatrix} \sin \omega_k (t + 1) \\ \cos \omega_k (t + 1) \end{pmatrix}",
            r"Pair $k$ of $p_{t+1}$.",
        ),
        Step(
            r"= \begin{pmatrix} \sin(\omega_k t + \omega_k) \\ \cos(\omega_k t + \omega_k) "
            r"\end{pmatrix}",
            "Multiply out.",
        ),
        Step(
            r"= \begin{pmatrix} \sin \omega_k t \cos \omega_k + \cos \omega_k t \sin \omega_k \\ "
            r"\cos \omega_k t \cos \omega_k - \sin \omega_k t \sin \omega_k \end{pmatrix}",
            r"Addition theorems: $\sin(a + b) = \sin a \cos b + \cos a \sin b$ and "
            r"$\cos(a + b) = \cos a \cos b - \sin a \sin b$.",
        ),
        Step(
            r"= \begin{pmatrix} \cos \omega_k & \sin \omega_k \\ -\sin \omega_k & \cos \omega_k "
            r"\end{pmatrix} \begin{pmatrix} \sin \omega_k t \\ \cos \omega_k t \end{pmatrix}",
            r"Both rows are linear in $\sin \omega_k t$ and $\cos \omega_k t$. Call the matrix "
            r"$m_k$; it does not depend on $t$.",
        ),
        Step(r"p_{t+1}", "The whole vector."),
        Step(
            r"= M p_t, \quad M = \mathrm{diag}(m_0, \ldots, m_{d/2-1})",
            r"Each pair has its own block $m_k$ on the diagonal of $M$.",
        ),
        Step(r"m_k^2", "Two steps."),
        Step(
            r"= \begin{pmatrix} \cos^2 \omega_k - \sin^2 \omega_k & 2 \sin \omega_k \cos \omega_k "
            r"\\ -2 \sin \omega_k \cos \omega_k & \cos^2 \omega_k - \sin^2 \omega_k \end{pmatrix}",
            "Rows times columns.",
        ),
        Step(
            r"= \begin{pmatrix} \cos 2 \omega_k & \sin 2 \omega_k \\ -\sin 2 \omega_k & "
            r"\cos 2 \omega_k \end{pmatrix}",
            r"Addition theorems with $a = b$. Each further factor adds one more $\omega_k$ in the "
            "same way.",
        ),
        Step(r"m_k^s", r"So after $s$ steps:"),
        Step(
            r"= \begin{pmatrix} \cos s \omega_k & \sin s \omega_k \\ -\sin s \omega_k & "
            r"\cos s \omega_k \end{pmatrix}",
            r"By induction: $s$ rotations by $\omega_k$ are one by $s \omega_k$.",
        ),
        Step(r"p_{t+s}", "The whole vector again."),
        Step(r"= M \left( M^{s-1} p_t \right)", r"$s$ times one step: $M (M \cdots (M p_t))$."),
        Step(r"= M^s p_t", r"One matrix for each distance $s$, the same for all $t$."),
        Step(r"p_t \cdot p_{t+s}", "The product of two positions."),
        Step(
            r"= \sum_{k=0}^{d/2-1} \left( \sin \omega_k t \sin \omega_k (t + s) + \cos \omega_k t "
            r"\cos \omega_k (t + s) \right)",
            "Pair by pair.",
        ),
        Step(
            r"= \sum_{k=0}^{d/2-1} \cos s \omega_k",
            r"$\cos a \cos b + \sin a \sin b = \cos(b - a)$: it depends on the distance only.",
        ),
    ),
)

DERIVATIONS = (CONCATENATION, RELATIVE_BIAS, SHIFT_MATRIX)
