"""The same tokens in another order."""

from functools import partial
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.attention.registry import Mechanism, find, supporting
from regard.models.config import TransformerConfig
from regard.models.transformer import Decoder, Encoder
from regard.positions.config import (
    AlibiConfig,
    LearnedConfig,
    NoPositionsConfig,
    PositionsConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from regard.studies.figure import one_chart, series
from regard.studies.finding import EvidenceParts, at_least, at_most, table
from regard.studies.random_models import untrained
from regard.studies.study import Seed, study
from regard.studies.tensors import seeded

Kind = Literal["none", "learned", "sinusoidal", "rotary", "alibi"]
KINDS: dict[str, PositionsConfig] = {
    "none": NoPositionsConfig(),
    "learned": LearnedConfig(),
    "sinusoidal": SinusoidalConfig(),
    "rotary": RotaryConfig(),
    "alibi": AlibiConfig(),
}
ROUNDING = 1e-10
"""More than what float64 rounds off states of about 1 in six layers, and less than any effect."""
SEEN = 0.01
"""A difference that could be read off states of about 1."""


@study()
def permutation(
    n: Annotated[int, Meta(ge=10, le=128)] = 12,
    layers: Annotated[int, Meta(ge=1, le=6)] = 2,
    positions: Kind = ("none"),
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Does a Transformer without positions depend on the order of its tokens?

    No, if all tokens attend to all others: permuted tokens give the same states, permuted. With a
    causal mask, it depends on the order even without positions.

    $$ f(P X) = P f(X) \quad \text{for every permutation matrix } P $$

    Attention adds up values by products of queries and keys. A sum has no order, and all else
    in a layer is done to each token by itself. So a Transformer without positions sees a bag of
    tokens: whatever its weights, each token gets the same state wherever it stands.

    Positions change that, and so does a causal mask: the first token sees one token, the second
    two, and this difference is enough to tell their places. But it takes two layers until the
    last token knows the order of those before. In one layer it looks at all of them with keys
    that don't know their place, and gathers a sum once more.

    The table tells which mechanisms treat all places alike. Linformer mixes the keys by place, and
    a window or blocks are cut by place: there the mechanism itself tells the order.

    Figure. Dots: change of the state of each token when the tokens change places: {bag:.1g} at most
    {named}, up to {placed:.1g} with positions, and as visible under a causal mask.

    Args:
        n: tokens
        layers: layers
        positions: positions of the one that should not know
        seed: seed of weights and order
    """
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=draw)
    before = torch.cat([torch.randperm(n - 1, generator=draw), torch.tensor([n - 1])])
    bag = order_error(encoder(n, layers, KINDS[positions], seed), order)
    placed = order_error(encoder(n, layers, SinusoidalConfig(), seed), order)
    causal = order_error(_causal(n, layers, seed), order)
    last_of_one, last_of_two = (order_error(_causal(n, i, seed), before)[-1] for i in (1, 2))
    named = "without positions" if positions == "none" else f"with {positions} positions"
    yield at_most(f"largest change of a state, {named}", bag.max(), ROUNDING)
    yield at_least("with positions", placed.max(), SEEN)
    yield at_least("causal, without positions", causal.max(), SEEN)
    name = "causal, last token after those before changed places, 1 layer"
    yield at_most(name, last_of_one, ROUNDING)
    yield at_least("the same, 2 layers", last_of_two, SEEN)
    errors = {kind: mechanism_error(find(kind), seed) for kind in supporting("bidirectional")}
    rows = [(name, error, "no" if error < ROUNDING else "yes") for name, error in errors.items()]
    yield table(["mechanism", "largest change of an output", "tells the order"], rows)
    places = range(1, n + 1)
    changes = {named: bag, "with positions": placed, "causal mask alone": causal}
    yield one_chart(
        *(
            series(places, change.clamp(min=1e-17), name, "dots")
            for name, change in changes.items()
        ),
        x="place",
        y="change of the state",
        y_scale="log",
        y_limits=(1e-18, 1e3),
        values={"bag": bag.max(), "named": named, "placed": placed.max()},
    )


def order_error(model: Encoder | Decoder, order: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """How much each token's state changes when the tokens 0, 1, … change places."""
    ids = torch.arange(len(order))[None]
    moved: Tensor = model(ids[:, order]) - model(ids)[:, order]
    return moved[0].abs().amax(-1)


def mechanism_error(mechanism: Mechanism, seed: int) -> float:
    """How much an output changes, at most, when 12 queries, keys and values change places."""
    draw = torch.Generator().manual_seed(seed)
    low, high = mechanism.inputs
    inputs = torch.rand(3, 1, 2, 12, 4, dtype=torch.float64, generator=draw) * (high - low) + low
    order = torch.randperm(12, generator=draw)
    attend = seeded(lambda: mechanism.example().double().eval(), seed)
    with torch.no_grad():
        changed = attend(*inputs[..., order, :]) - attend(*inputs)[..., order, :]
    return float(changed.abs().max())


def one_stack(length: int, layers: int, d: int, positions: PositionsConfig) -> TransformerConfig:
    """Return a stack of layers with four heads and without dropout."""
    sizes: dict[str, Any] = {"context_length": length, "n_layers": layers, "d_model": d}
    return TransformerConfig(n_heads=4, dropout=0.0, positions=positions, **sizes)


def encoder(n: int, layers: int, positions: PositionsConfig, seed: int) -> Encoder:
    return untrained(partial(Encoder, one_stack(n, layers, 32, positions), n), seed)


def _causal(n: int, layers: int, seed: int) -> Decoder:
    return untrained(partial(Decoder, one_stack(n, layers, 32, NoPositionsConfig()), n), seed)
