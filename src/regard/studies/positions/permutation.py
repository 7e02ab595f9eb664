"""Transformers with permuted tokens."""

from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.attention.config import supporting
from regard.attention.registry import Mechanism, find
from regard.models.config import TransformerConfig
from regard.models.transformer import Decoder, Encoder
from regard.positions.config import PositionsConfig, T5BiasConfig
from regard.studies.figure import chart, figure, series
from regard.studies.finding import at_least, at_most, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest, seeded, untrained

M = TypeVar("M", Encoder, Decoder)
Kind = Literal[
    "none",
    "learned",
    "sinusoidal",
    "one-hot",
    "rotary",
    "alibi",
    "relative-bias",
    "t5-bias",
    "shaw-vectors",
]
KINDS: dict[str, PositionsConfig] = {
    **{kind: msgspec.convert({"kind": kind}, PositionsConfig) for kind in get_args(Kind)},
    "t5-bias": T5BiasConfig(bidirectional=True),
}
ROUNDING = 1e-10
"""Bound above rounding in six float64 layers with states of about 1, and below any effect."""
VISIBLE = 0.01
"""Smallest difference that counts as an effect, for states of about 1."""


@study()
def permutation(
    n: Annotated[int, Meta(ge=10, le=128)] = 12,
    layers: Annotated[int, Meta(ge=1, le=6)] = 2,
    positions: Kind = "none",
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Does a Transformer without positions depend on the order of its tokens?

    No, if all tokens attend to all others: permuted tokens give the same states, permuted. With a
    causal mask, it depends on the order even without positions.

    $$ f(P X) = P f(X) \quad \text{for every permutation matrix } P $$

    The tokens of random models are permuted. With a causal mask, the last token depends on the
    order of earlier tokens only from the second layer on. The table lists which mechanisms depend
    on the order: Linformer mixes keys by place, a Synthesizer scores places, and windows and blocks
    are defined by place.

    Figure. Dots: change of the state of each token under a permutation. It is about {bag:.1g}
    {named}, up to {placed:.1g} with positions, and of similar size with a causal mask.

    Args:
        n: number of tokens
        layers: number of layers
        positions: position encoding of the first model
        seed: seed of weights and order
    """
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=draw)
    before = torch.cat([torch.randperm(n - 1, generator=draw), torch.tensor([n - 1])])
    bag = order_error(stack(Encoder, n, layers, KINDS[positions], seed), order)
    placed = order_error(stack(Encoder, n, layers, KINDS["sinusoidal"], seed), order)
    causal = order_error(stack(Decoder, n, layers, KINDS["none"], seed), order)
    named = "without positions" if positions == "none" else f"with {positions} positions"
    yield at_most(f"largest change of a state, {named}", bag.max(), ROUNDING)
    yield at_least("largest change of a state, with positions", placed.max(), VISIBLE)
    yield at_least("largest change of a state, causal, without positions", causal.max(), VISIBLE)
    last_of_one, last_of_two = (
        order_error(stack(Decoder, n, i, KINDS["none"], seed), before)[-1] for i in (1, 2)
    )
    name = "change of the last state, earlier tokens permuted, causal"
    yield at_most(f"{name}, 1 layer", last_of_one, ROUNDING)
    yield at_least(f"{name}, 2 layers", last_of_two, VISIBLE)
    errors = {kind: mechanism_error(find(kind), seed) for kind in compared()}
    rows = [(name, error, "no" if error < ROUNDING else "yes") for name, error in errors.items()]
    yield table(["mechanism", "largest change of an output", "depends on the order"], rows)
    changes = {named: bag, "with positions": placed, "causal mask alone": causal}
    dots = [
        series(range(1, len(change) + 1), change.clamp(min=1e-17), name, "dots")
        for name, change in changes.items()
    ]
    limits = (1e-18, 1e3)
    by_place = chart(*dots, x="place", y="change of the state", y_scale="log", y_limits=limits)
    yield figure(by_place, bag=bag.max(), named=named, placed=placed.max())


def compared() -> list[str]:
    """Return the mechanisms that attend to all tokens, and have no inputs but queries and keys."""
    return [kind for kind in supporting("bidirectional") if not find(kind).type.gates]


def order_error(model: Encoder | Decoder, order: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the largest change of each token's state when the tokens 0, 1, … are permuted."""
    ids = torch.arange(len(order))[None]
    moved: Tensor = model(ids[:, order]) - model(ids)[:, order]
    return moved[0].abs().amax(-1)


def mechanism_error(mechanism: Mechanism, seed: int) -> float:
    """Return the largest change of an output when 12 queries, keys and values are permuted."""
    draw = torch.Generator().manual_seed(seed)
    low, high = mechanism.inputs
    inputs = torch.rand(3, 1, 2, 12, 4, dtype=torch.float64, generator=draw) * (high - low) + low
    order = torch.randperm(12, generator=draw)
    attend = seeded(lambda: mechanism.example().double().eval(), seed)
    with torch.no_grad():
        return largest(attend(*inputs[..., order, :]) - attend(*inputs)[..., order, :])


def stack_config(length: int, layers: int, d: int, positions: PositionsConfig) -> TransformerConfig:
    """Return the configuration of layers with four heads and without dropout."""
    sizes: dict[str, Any] = {"context_length": length, "n_layers": layers, "d_model": d}
    return TransformerConfig(n_heads=4, dropout=0.0, positions=positions, **sizes)


def stack(kind: type[M], n: int, layers: int, positions: PositionsConfig, seed: int) -> M:
    """Return a random encoder or decoder."""
    return untrained(partial(kind, stack_config(n, layers, 32, positions), n), seed)
