"""Attention with forget gates."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import Forgetting, Mask, Softmax, State
from regard.attention.config import LayerShape
from regard.attention.forgetting import Forgotten
from regard.attention.score_config import ForgettingConfig
from regard.attention.types import Bias
from regard.positions import Alibi

CAUSAL = Mask.causal()


def inputs(n: int, kv_heads: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, n, 8, generator=draw).double()
    key, value = torch.randn(2, 2, kv_heads, n, 8, generator=draw).double()
    return query, key, value, torch.randn(2, 4, n, generator=draw).double().sigmoid().log()


def test_a_constant_gate_is_alibi() -> None:
    """Σ_(j < t ≤ i) log f = −(i − j) slope."""
    query, key, value, _ = inputs(9)
    alibi = Alibi(heads=4)
    slopes = -alibi.dense(torch.tensor([1]), torch.tensor([0]))[:, 0, 0].double()
    gates = {"log_forget": -slopes[None, :, None].expand(2, 4, 9)}
    expected = Softmax()(query, key, value, mask=CAUSAL, bias=alibi)
    found = Forgetting(heads=4)(query, key, value, mask=CAUSAL, gates=gates)
    torch.testing.assert_close(found, expected)


def test_a_closed_gate_hides_all_that_came_before() -> None:
    query, key, _, log_forget = inputs(9)
    log_forget[:, :, 5] = -torch.inf
    attend = Forgetting(heads=4)
    weights = attend.weights(query, key, mask=CAUSAL, gates={"log_forget": log_forget})
    assert float(weights[:, :, 5:, :5].max()) < 1e-30
    assert bool(weights.isfinite().all())


def test_sums_are_kept_in_float32_beside_a_cache_in_bfloat16() -> None:
    shape = LayerShape(n_heads=4, n_kv_heads=2, n_value_heads=2, d_head=8, context_length=512)
    attend = ForgettingConfig().build(shape)
    query, key, value, log_forget = (x.bfloat16() for x in inputs(400, 2))
    gates = {"log_forget": log_forget.float()}
    state: State = attend.init_state(
        2, 2, 8, 8, capacity=401, device=torch.device("cpu"), dtype=torch.bfloat16
    )
    outputs = []
    for i in range(400):
        here = slice(i, i + 1)
        q, k, v = (x[:, :, here] for x in (query, key, value))
        new = {"log_forget": gates["log_forget"][:, :, here]}
        out, state = attend.extend(q, k, v, state, gates=new)
        outputs.append(out)
    whole = attend(query, key, value, mask=CAUSAL, gates=gates)
    error = (torch.cat(outputs, 2).double() - whole.double()).abs().max()
    assert float(error) <= 4 * torch.finfo(torch.bfloat16).eps * float(value.abs().max())


def test_it_is_a_score_mod_for_kernels() -> None:
    *_, log_forget = inputs(6)
    sums = log_forget.cumsum(-1)
    forgotten = Forgotten(sums, sums, Alibi(heads=4))
    assert isinstance(forgotten, Bias)
    dense = forgotten.dense(torch.arange(6), torch.arange(6))
    grid = torch.meshgrid(*map(torch.arange, (2, 4, 6, 6)), indexing="ij")
    found = forgotten.score_mod()(torch.zeros(2, 4, 6, 6).double(), *grid)
    torch.testing.assert_close(found, dense.double())


def test_flex_attention_reads_the_sums_of_queries_and_keys_from_two_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no gradient for one tensor that a score is indexed by twice."""
    query, key, value, log_forget = inputs(9)
    seen: list[Forgotten] = []

    def forward(*call: Any) -> Tensor:
        seen.append(call[5])
        out: Tensor = call[3]
        return out

    monkeypatch.setattr(Softmax, "_forward", forward)
    Forgetting(heads=4)(query, key, value, mask=CAUSAL, gates={"log_forget": log_forget})
    assert seen[0].at_queries.data_ptr() != seen[0].at_keys.data_ptr()
