"""Layers around a mechanism with gates: projections of the layer's input x, as in the papers.

A gating computes the gates from x by one product, normalizes or changes queries, keys and values,
and normalizes the heads' outputs. Decays and step sizes are initialized as in Gu & Dao, 2023,
§3.6: A uniform in [1, 16], softplus(bias) log-uniform in [0.001, 0.1].

Shapes: b rows, n tokens, h value heads of width e, d the width of a key; x has the model's width.
"""

import math
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.backends import repeat_kv
from regard.attention.base import as_dtype, at_least_float32
from regard.attention.gates import Gate, Gates
from regard.attention.norm import RMSNorm
from regard.attention.types import Keys, Outputs, Queries, Values

if TYPE_CHECKING:
    from regard.attention.config import LayerShape

Input: TypeAlias = Float[Tensor, "b n d_model"]
Gated: TypeAlias = tuple[Queries, Keys, Values, Gates]
"""Inputs of a mechanism with gates."""


class Gating(nn.Module):
    """Gates from linear projections of x, squashed into their ranges."""

    def __init__(self, gates: tuple[Gate, ...], d_model: int, shape: "LayerShape") -> None:
        super().__init__()
        self.declared, self.d_head = gates, shape.d_head
        self.n_heads, self.heads = shape.n_heads, shape.n_value_heads
        self.make(d_model)

    def make(self, d_model: int) -> None:
        """Create the projections of the gates."""
        self.widths = [self._width(gate) for gate in self.declared]
        self.proj = nn.Linear(d_model, sum(self.widths))

    def activate(self, heads: Float[Tensor, "b heads n d"]) -> Float[Tensor, "b heads n d"]:
        """Return queries, keys and values after their activation, before rotary positions."""
        return heads

    def normalize(self, both: Float[Tensor, "b heads n d"]) -> Float[Tensor, "b heads n d"]:
        """Return queries and keys, normalized before rotary positions."""
        return both

    def inputs(self, x: Input, query: Queries, key: Keys, value: Values) -> Gated:
        """Return the inputs of the mechanism, from activated and normalized queries and keys."""
        return query, key, value, self.gates(x)

    def gates(self, x: Input) -> dict[str, Tensor]:
        """Return the gates, in float32 at least."""
        if not self.declared:
            return {}
        parts = self.proj(x).split_with_sizes(self.widths, -1)
        gates = zip(self.declared, parts, strict=True)
        return {gate.name: self.gate(gate, part) for gate, part in gates}

    def gate(self, gate: Gate, projected: Float[Tensor, "b n width"]) -> Tensor:
        """Return a gate from its projection, squashed into its range."""
        return _into(gate, self._by_head(gate, projected))

    def finish(self, x: Input, out: Outputs) -> Outputs:
        """Return the heads' outputs before the output projection."""
        return out

    def _heads(self, gate: Gate) -> int:
        return gate.heads or (self.n_heads if gate.of == "query" else self.heads)

    def _width(self, gate: Gate) -> int:
        return self._heads(gate) * (gate.width or (1 if gate.per == "head" else self.d_head))

    def _by_head(self, gate: Gate, projected: Tensor) -> Tensor:
        """(b, n, ·) → (b, h, n) or (b, h, n, d), in float32 at least."""
        wide = at_least_float32(projected)
        if gate.per == "head" and gate.width is None:
            return wide.transpose(1, 2)
        return wide.view(*wide.shape[:2], self._heads(gate), -1).transpose(1, 2)


class OutputGate(Gating):
    """A head's output times σ(W x), by channel or by head (Qiu et al., 2025, arXiv:2505.06708)."""

    def __init__(self, d_model: int, shape: "LayerShape", *, by_channel: bool = True) -> None:
        self.by_channel = by_channel
        super().__init__((), d_model, shape)

    def make(self, d_model: int) -> None:
        width = self.n_heads * (self.d_head if self.by_channel else 1)
        self.proj = nn.Linear(d_model, width, bias=False)

    def finish(self, x: Input, out: Outputs) -> Outputs:
        b, _, n, _ = out.shape
        gate: Tensor = self.proj(x).view(b, n, self.n_heads, -1).transpose(1, 2)
        return out * gate.sigmoid()


class DifferentialGating(Gating):
    """λ = σ(w·x) of each head (Ye et al., 2026)."""

    def make(self, d_model: int) -> None:
        self.proj = nn.Linear(d_model, self.n_heads, bias=False)

    def gates(self, x: Input) -> dict[str, Tensor]:
        return {"share": at_least_float32(self.proj(x)).sigmoid().transpose(1, 2)}


class DifferentialNorm(Gating):
    """Each head's output, normalized and times 1 − λ_init (Ye et al., 2024, arXiv:2410.05258)."""

    def __init__(self, d_model: int, shape: "LayerShape", *, lambda_init: float) -> None:
        super().__init__((), d_model, shape)
        self.norm, self.scale = RMSNorm(shape.d_head, eps=1e-5), 1 - lambda_init

    def make(self, d_model: int) -> None:
        pass

    def finish(self, x: Input, out: Outputs) -> Outputs:
        normalized: Tensor = self.norm(out)
        return normalized * self.scale


class IndexerGating(Gating):
    """Queries, keys and weights of an indexer (DeepSeek-AI, 2025, arXiv:2512.02556, eq. 1).

    They pass no gradient to x: the indexer is trained by its own loss. Its weights are divided by
    √(heads · width).
    """

    def make(self, d_model: int) -> None:
        self.widths = [self._width(gate) for gate in self.declared]
        self.scale = self.widths[0] ** -0.5
        self.proj = nn.Linear(d_model, sum(self.widths), bias=False)

    def gates(self, x: Input) -> dict[str, Tensor]:
        return super().gates(x.detach())

    def gate(self, gate: Gate, projected: Tensor) -> Tensor:
        by_head = self._by_head(gate, projected)
        return by_head * self.scale if gate.name == "index_weight" else by_head


class NormalizedGating(Gating):
    """Gates of a recurrence, whose outputs are normalized."""

    activated = False
    """Whether queries, keys and values pass through a SiLU."""

    def __init__(
        self,
        gates: tuple[Gate, ...],
        d_model: int,
        shape: "LayerShape",
        *,
        qk_norm: bool = False,
        qk_norm_eps: float = 0.0,
        output_gate: bool = False,
        gate_activation: str = "sigmoid",
        norm_eps: float = 1e-5,
    ) -> None:
        """`qk_norm` scales queries and keys to length 1, `output_gate` multiplies by σ(W x).

        `gate_activation` may be silu instead of σ; each `eps` is added before a root is taken.
        """
        super().__init__(gates, d_model, shape)
        self.qk_norm, self.qk_norm_eps = qk_norm, qk_norm_eps
        self.gate_activation = torch.sigmoid if gate_activation == "sigmoid" else F.silu
        outputs = max(shape.n_heads, self.heads)
        self.out_norm = RMSNorm(shape.d_head, eps=norm_eps)
        self.out_gate = (
            nn.Linear(d_model, outputs * shape.d_head, bias=False) if output_gate else None
        )

    def activate(self, heads: Float[Tensor, "b heads n d"]) -> Float[Tensor, "b heads n d"]:
        """Return queries, keys and values after their activation, before rotary positions."""
        return F.silu(heads) if self.activated else heads

    def normalize(self, both: Float[Tensor, "b heads n d"]) -> Float[Tensor, "b heads n d"]:
        """Return queries and keys, of length 1 with `qk_norm`, before rotary positions."""
        return _unit(both, self.qk_norm_eps) if self.qk_norm else both

    def finish(self, x: Input, out: Outputs) -> Outputs:
        """Return the heads' outputs, normalized (Sun et al., 2023, §2.2) and gated."""
        normalized = as_dtype(self.out_norm(at_least_float32(out)), out.dtype)
        if self.out_gate is None:
            return normalized
        b, _, n, _ = out.shape
        gate: Tensor = self.out_gate(x).view(b, n, -1, self.d_head).transpose(1, 2)
        return normalized * self.gate_activation(gate)


def _into(gate: Gate, x: Tensor) -> Tensor:
    """Squash numbers into the range of a gate; without bounds, return them unchanged."""
    if gate.high == math.inf:
        return x if gate.low == -math.inf else gate.low + F.softplus(x)
    if gate.low == -math.inf:
        below = F.logsigmoid(x)
        return below if gate.high == 0.0 else gate.high + below
    if (gate.low, gate.high) == (0.0, 1.0):
        return torch.sigmoid(x)
    return gate.low + (gate.high - gate.low) * torch.sigmoid(x)


def _unit(x: Tensor, eps: float = 0.0) -> Tensor:
    """Return x / √(x² + eps), of length 1 without eps, in half the time of `F.normalize`."""
    wide = at_least_float32(x)  # a length in bfloat16 would scale all channels by its rounding
    length: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    unit = wide / length.clamp_min(1e-12) if not eps else wide * (length.square() + eps).rsqrt()
    return as_dtype(unit, x.dtype)


class Steps(nn.Module):
    """Step sizes Δ = softplus(projected + bias), and log decays −A Δ, by head or channel."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.log_a = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        steps = torch.empty(width).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))  # softplus⁻¹

    def forward(self, projected: Float[Tensor, "b n width"]) -> Float[Tensor, "b n width"]:
        """Return the step sizes."""
        return F.softplus(at_least_float32(projected) + self.bias)

    def decay(self, steps: Float[Tensor, "b h n *d"]) -> Float[Tensor, "b h n *d"]:
        """Return the log decays."""
        rate = self.log_a.exp().neg()[:, None, None]
        return (rate if steps.ndim == 4 else rate.squeeze(2)) * steps


class GatedLinearGating(NormalizedGating):
    """log_decay = log σ(W₂ W₁ x + b) / 16, through 16 channels (Yang et al., 2023, §4.4)."""

    def make(self, d_model: int) -> None:
        self.proj = nn.Linear(d_model, 16, bias=False)
        self.decay = nn.Linear(16, self.heads * self.d_head)

    def gates(self, x: Input) -> dict[str, Tensor]:
        (log_decay,) = self.declared
        return {"log_decay": F.logsigmoid(self._by_head(log_decay, self.decay(self.proj(x)))) / 16}


class Mamba2Gating(NormalizedGating):
    """log_decay = −A Δ, and values times Δ (Dao & Gu, 2024, §7)."""

    activated = True

    def make(self, d_model: int) -> None:
        self.proj = nn.Linear(d_model, self.heads, bias=False)
        self.steps = Steps(self.heads, self.heads)

    def inputs(self, x: Input, query: Queries, key: Keys, value: Values) -> Gated:
        (log_decay,) = self.declared
        steps = self._by_head(log_decay, self.steps(self.proj(x)))
        scaled = value * steps[..., None].to(value.dtype)
        return query, key, scaled, {"log_decay": self.steps.decay(steps)}


class DeltaGating(NormalizedGating):
    """β = σ(W x), doubled with negative eigenvalues; decays, if any, as in Mamba-2.

    Yang et al., 2024, arXiv:2406.06484, §3.3 and 2412.06464, §3.4; decays by channel are projected
    through d channels (arXiv:2510.26692, §3); negative eigenvalues: arXiv:2411.12537.
    """

    activated = True

    def __init__(
        self, *args: object, negative_eigenvalues: bool = False, **options: object
    ) -> None:
        self.largest = 2.0 if negative_eigenvalues else 1.0
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def make(self, d_model: int) -> None:
        widths = {gate: self._width(gate) for gate in self.declared}
        for gate in self.declared:
            if gate.name == "log_decay":
                self.steps = Steps(self.heads, widths[gate])
                if gate.per == "key":
                    self.decay = nn.Linear(self.d_head, widths[gate], bias=False)
                    widths[gate] = self.d_head
        self.widths = list(widths.values())
        self.proj = nn.Linear(d_model, sum(self.widths), bias=False)

    def gate(self, gate: Gate, projected: Tensor) -> Tensor:
        if gate.name == "log_decay":
            wide = projected if gate.per == "head" else self.decay(projected)
            return self.steps.decay(self._by_head(gate, self.steps(wide)))
        share = self._by_head(gate, projected).sigmoid()  # to erase, or to write
        return share if gate.name == "write" or self.largest == 1.0 else self.largest * share


class RWKV7Gating(NormalizedGating):
    """log_decay = −e^(−½) σ(·), κ = k ⊙ ξ of length 1, k times 1 + (a − 1) ⊙ α.

    Peng et al., 2025, eqs 7-14, without the token shift; the short convolution replaces it. The
    decays of channels are initialized from exp(−0.001) to exp(−0.11), as in the first layer of the
    authors' RWKV-LM; with σ(0) = ½, a state would lose almost half in two tokens.
    """

    def make(self, d_model: int) -> None:
        width = self.heads * self.d_head
        self.proj = nn.Linear(d_model, 2 * self.d_head, bias=False)
        self.decay = nn.Linear(self.d_head, width, bias=False)
        self.base_decay = nn.Parameter(5 * torch.linspace(0, 1, width) ** 0.85 - 6.5)
        self.erase = nn.Linear(self.d_head, width)
        self.removal = nn.Parameter(torch.full((self.heads, 1, self.d_head), 0.85))
        self.replacement = nn.Parameter(torch.ones(self.heads, 1, self.d_head))

    def inputs(self, x: Input, query: Queries, key: Keys, value: Values) -> Gated:
        # Keys are changed per value head.
        query, key = repeat_kv(query, max(query.shape[1], self.heads)), repeat_kv(key, self.heads)
        by_channel = self.declared[0]
        of_decay, of_erase = self.proj(x).chunk(2, -1)
        erase = torch.sigmoid(self._by_head(by_channel, self.erase(of_erase)))
        decay = self._by_head(by_channel, self.decay(of_decay.tanh()) + self.base_decay)
        log_decay = -math.exp(-0.5) * torch.sigmoid(decay)
        removal_key = _unit(at_least_float32(key) * self.removal)
        key = torch.addcmul(key, key, ((erase - 1) * self.replacement).to(key.dtype))
        gates = {"log_decay": log_decay, "removal_key": removal_key, "erase": erase}
        return query, key, value, gates
