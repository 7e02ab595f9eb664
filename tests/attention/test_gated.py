"""Gated linear recurrences: extreme gates, chunk borders, reductions to one another, grouped heads.

The contract checks them on short rows with mild gates; here are those that it doesn't have.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import (
    RWKV7,
    DeltaNet,
    GatedDeltaNet,
    GatedDeltaNet2,
    GatedLinear,
    KimiDelta,
    Mamba2,
    Mask,
    Softmax,
)
from regard.attention.gated import RecurrentAttention
from regard.attention.gates import Gates
from regard.attention.recurrence import Update
from regard.errors import UnsupportedError

MECHANISMS = (GatedLinear, Mamba2, DeltaNet, GatedDeltaNet, KimiDelta, GatedDeltaNet2, RWKV7)
CAUSAL = Mask.causal()
D, E = 4, 3


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def draw(
    mechanism: type[RecurrentAttention],
    n: int,
    *,
    heads: tuple[int, int, int] = (2, 2, 2),
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    extremes: tuple[float, ...] = (0.0, -30.0, -math.inf),
) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Queries, unit keys, values and gates; a quarter of the log decays are extreme."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=dtype)

    of_query, of_key, of_value = heads
    query = 2 * rand(2, of_query, n, D) - 1
    key, value = unit(rand(2, of_key, n, D) - 0.5), 2 * rand(2, of_value, n, E) - 1
    gates = {}
    for gate in mechanism.gates:
        shape = gate.shape(query, key, value)
        drawn = rand(*shape)
        if gate.name == "log_decay":
            drawn = -drawn
            for extreme in extremes:
                drawn[rand(*shape) < 1 / 12] = extreme
        if gate.name == "removal_key":
            drawn = unit(drawn - 0.5)
        gates[gate.name] = drawn
    return query, key, value, gates


def expected(
    attend: RecurrentAttention, query: Tensor, key: Tensor, value: Tensor, gates: Gates
) -> Tensor:
    of: Any = attend
    reference: Tensor = of.reference(query, key, CAUSAL, None, **gates)
    values = attend.gated_values(value, gates).double()
    gathered: Tensor = reference @ values.repeat_interleave(
        reference.shape[1] // values.shape[1], 1
    )
    return gathered


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_extreme_decays_at_the_borders_of_chunks(
    mechanism: type[RecurrentAttention], dtype: torch.dtype
) -> None:
    chunk = mechanism.chunk
    for n in (1, chunk - 1, chunk, chunk + 1, 3 * chunk + 1):
        query, key, value, gates = draw(mechanism, n, dtype=dtype, seed=n)
        inputs = [query, key, value, *gates.values()]
        for x in inputs:
            x.requires_grad_()
        attend = mechanism()
        out = attend(query, key, value, mask=CAUSAL, gates=gates)
        # A row sums up to n products of numbers up to 1, each rounded.
        bound = 8 * n**0.5 * torch.finfo(dtype).eps * max(1.0, float(out.detach().abs().max()))
        error = out.detach().double() - expected(attend, query, key, value, gates).detach()
        assert float(error.abs().max()) <= bound
        for gradient in torch.autograd.grad(out.square().sum(), inputs):
            assert bool(gradient.isfinite().all())


def equal(first: Tensor, second: Tensor) -> None:
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


def test_each_reduces_to_the_simpler_one() -> None:
    query, key, value, gates = draw(GatedDeltaNet, 70, extremes=(0.0, -30.0))
    log_decay, beta = gates["log_decay"], gates["beta"]
    by_channel = log_decay[..., None].expand_as(key)
    strength = beta[..., None]

    def run(attend: RecurrentAttention, written: Tensor = key, **gates: Tensor) -> Tensor:
        out: Tensor = attend(query, written, value, mask=CAUSAL, gates=gates)
        return out

    never, none = torch.zeros_like(log_decay), torch.zeros_like(key)
    gated_delta = run(GatedDeltaNet(), log_decay=log_decay, beta=beta)
    delta = run(DeltaNet(), beta=beta)
    equal(run(GatedDeltaNet(), log_decay=never, beta=beta), delta)
    equal(run(KimiDelta(), log_decay=by_channel, beta=beta), gated_delta)
    equal(
        run(
            GatedDeltaNet2(),
            log_decay=by_channel,
            erase=strength.expand_as(key),
            write=strength.expand_as(value),
        ),
        gated_delta,
    )
    equal(run(GatedLinear(), log_decay=by_channel), run(Mamba2(scaled=True), log_decay=log_decay))
    rwkv7 = RWKV7(scaled=True)
    erase = strength.expand_as(key)
    equal(run(rwkv7, strength * key, log_decay=none, removal_key=key, erase=erase), delta)
    decayed = log_decay.exp()[..., None] * erase
    equal(
        run(rwkv7, strength * key, log_decay=by_channel, removal_key=key, erase=decayed),
        gated_delta,
    )
    linear = (query @ key.mT / math.sqrt(D)).tril() @ value
    equal(run(GatedLinear(), log_decay=none), linear)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_segments_of_a_row_change_nothing(
    mechanism: type[RecurrentAttention], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chunk at a time and all at once: the same outputs and gradients."""
    query, key, value, gates = draw(mechanism, 3 * mechanism.chunk + 1, extremes=(0.0, -30.0))
    inputs = [x.requires_grad_() for x in (query, key, value, *gates.values())]
    found = []
    for cached in (0, 1 << 40):
        monkeypatch.setattr("regard.attention.recurrence.CACHED", cached)
        out = mechanism()(query, key, value, mask=CAUSAL, gates=gates)
        found.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for one, all_ in zip(*found, strict=True):
        equal(one, all_)


def test_erasing_by_channel_stays_finite_in_long_rows() -> None:
    """Two steps of it may stretch the state by a quarter: it is no contraction."""
    query, key, value, gates = draw(GatedDeltaNet2, 2048, dtype=torch.float32, extremes=())
    gates["log_decay"].zero_()
    out = GatedDeltaNet2()(query, key, value, mask=CAUSAL, gates=gates)
    wide = {name: gate.double() for name, gate in gates.items()}
    exact = GatedDeltaNet2()(query.double(), key.double(), value.double(), mask=CAUSAL, gates=wide)
    assert float((out - exact).abs().max()) <= 1e-4 * float(exact.abs().max())


def test_what_does_not_fit_is_refused() -> None:
    query, key, value, gates = draw(GatedDeltaNet, 5)
    with pytest.raises(
        ValueError, match="softmax attention takes no gates; given: beta, log_decay"
    ):
        Softmax()(query, key, value, mask=CAUSAL, gates=gates)
    attend = GatedDeltaNet()
    with pytest.raises(ValueError, match="takes log_decay, beta; given: no gates"):
        attend(query, key, value, mask=CAUSAL)
    with pytest.raises(ValueError, match=r"beta has shape \(2, 2, 4\), not \(2, 2, 5\)"):
        attend(query, key, value, mask=CAUSAL, gates=gates | {"beta": gates["beta"][:, :, :4]})
    with pytest.raises(UnsupportedError, match="does not support attention without a causal mask"):
        attend(query, key, value, gates=gates)
    query, key, value, gates = draw(GatedDeltaNet, 5, heads=(4, 2, 6))
    with pytest.raises(ValueError, match="4 query heads, 2 key heads and 6 value heads don't fit"):
        attend(query, key, value, mask=CAUSAL, gates=gates)
    with pytest.raises(ValueError, match="a chunk has at least one token, not 0"):
        GatedDeltaNet(chunk=0)


class Sums(RecurrentAttention):
    """Linear attention without gates."""

    name = "sums"

    def update(self, key: Tensor, value: Tensor, **gates: Tensor) -> Update:
        return Update(key, value, torch.zeros_like(key[..., :1]))


def test_a_custom_mechanism_needs_no_gates() -> None:
    query, key, value, _ = draw(Sums, 5)
    weights = Sums().weights(query, key, mask=CAUSAL)
    torch.testing.assert_close(weights, (query @ key.mT * D**-0.5).tril())
    torch.testing.assert_close(Sums()(query, key, value, mask=CAUSAL), weights @ value)
