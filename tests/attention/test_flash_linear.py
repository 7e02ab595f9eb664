"""What flash-linear-attention is asked to compute, by functions with its signatures on a CPU."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from test_gated import MECHANISMS, D, E, draw, unit
from torch import Tensor

from regard.attention import Mask, flash_linear
from regard.attention.gated import RecurrentAttention

CAUSAL = Mask.causal()
HALF = (torch.bfloat16, torch.float16)


def by_token(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    gk: Tensor,
    *,
    scale: float,
    initial_state: Tensor,
    output_final_state: bool,
) -> tuple[Tensor, Tensor]:
    """S_t = (D_t + b_t a_tᵀ) S_(t−1) + k_t v_tᵀ of rows (b, n, h, ·), as documented."""
    assert output_final_state
    state, outputs = initial_state, []
    for t in range(q.shape[1]):
        erased = torch.einsum("bhd,bhde->bhe", a[:, t].to(state), state)
        state = gk[:, t, :, :, None].exp() * state
        state = state + torch.einsum("bhd,bhe->bhde", b[:, t].to(state), erased)
        state = state + torch.einsum("bhd,bhe->bhde", k[:, t].to(state), v[:, t].to(state))
        outputs.append(torch.einsum("bhd,bhde->bhe", q[:, t].to(state), state) * scale)
    return torch.stack(outputs, 1).to(v.dtype), state


def gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    assert q.shape == k.shape == g.shape
    none = torch.zeros_like(k)
    return by_token(q, k, v, none, none, g, **options)


def simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    assert g.shape == q.shape[:3]
    return gla(q, k, v, g[..., None].expand_as(q), **options)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules with the kernels' names."""
    functions: dict[str, Callable[..., Any]] = {
        "fla.ops.generalized_delta_rule.chunk_dplr_delta_rule": by_token,
        "fla.ops.gla.chunk_gla": gla,
        "fla.ops.simple_gla.chunk_simple_gla": simple_gla,
    }
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for path, function in functions.items():
        name, _, attribute = path.rpartition(".")
        module = ModuleType(name)
        setattr(module, attribute, function)
        monkeypatch.setitem(sys.modules, name, module)


def run(
    attend: RecurrentAttention, tensors: list[Tensor], gates: dict[str, Tensor], mask: Mask
) -> list[Tensor]:
    """The output, and the gradient of everything that came in."""
    tensors = [x.clone().requires_grad_() for x in tensors]
    gates = {name: gate.clone().requires_grad_() for name, gate in gates.items()}
    out = attend(*tensors, mask=mask, gates=gates)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), *(x.grad for x in (*tensors, *gates.values()) if x.grad is not None)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("of_key", [1, 2])
@pytest.mark.parametrize(
    "mask",
    [
        CAUSAL,
        CAUSAL & Mask.lengths(torch.tensor([7, 4])),
        CAUSAL & Mask.documents(torch.tensor([[0, 0, 1, 1, 1, 2, 2, 3, 3]] * 2)),
    ],
    ids=["whole", "lengths", "documents"],
)
def test_kernels_compute_the_chunks(
    mechanism: type[RecurrentAttention], mask: Mask, of_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decays of −∞ count as e^(−80), which is 2e-35."""
    *tensors, gates = draw(mechanism, 9, heads=(2, of_key, 2))
    chunked = run(mechanism(), tensors, gates, mask)
    monkeypatch.setattr(flash_linear, "fits", lambda query, value: True)
    torch.testing.assert_close(run(mechanism(), tensors, gates, mask), chunked)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_row_is_continued_from_its_state(
    mechanism: type[RecurrentAttention], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key, value, gates = draw(mechanism, 9)
    whole = mechanism()(query, key, value, mask=CAUSAL, gates=gates)
    monkeypatch.setattr(flash_linear, "fits", lambda query, value: True)
    attend, outputs = mechanism(), []
    state = attend.init_state(2, 2, D, E, capacity=9, device=query.device, dtype=query.dtype)
    for part in (slice(0, 4), slice(4, 9)):
        now = {name: gate[:, :, part] for name, gate in gates.items()}
        out, state = attend.extend(
            query[:, :, part], key[:, :, part], value[:, :, part], state, gates=now
        )
        outputs.append(out)
    torch.testing.assert_close(torch.cat(outputs, 2), whole)


@pytest.mark.parametrize("dtype", HALF)
def test_vectors_are_rounded_and_decays_are_not(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Tensor] = []

    def record(*tensors: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        given.extend(tensors)
        return by_token(*tensors, **options)

    module = sys.modules["fla.ops.generalized_delta_rule"]
    monkeypatch.setattr(module, "chunk_dplr_delta_rule", record)
    for mechanism in MECHANISMS[2:]:
        query, key, value, gates = draw(mechanism, 9, dtype=torch.float32, extremes=())
        low = [x.to(dtype) for x in (query, key, value)]
        exact = mechanism()(*low, mask=CAUSAL, gates=gates)
        with monkeypatch.context() as patch:
            patch.setattr(flash_linear, "fits", lambda query, value: True)
            out = mechanism()(*low, mask=CAUSAL, gates=gates)
        assert out.dtype == dtype
        assert [x.dtype for x in given] == 5 * [dtype] + [torch.float32]
        assert all(x.is_contiguous() for x in given)
        error = float((out - exact).abs().max() / exact.abs().max())
        assert error <= 4 * torch.finfo(dtype).eps
        given.clear()


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"is_cuda": False}, False),
        ({"dtype": torch.float32}, False),
        ({"heads": 8}, False),
        ({"n": 1}, False),
        ({"d": 320}, False),
    ],
    ids=str,
)
def test_kernels_take_half_precision_on_a_gpu(
    change: dict[str, Any], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash_linear, "installed", lambda: True)
    case = {"is_cuda": True, "dtype": torch.bfloat16, "heads": 4, "n": 64, "d": 64} | change
    query: Any = SimpleNamespace(shape=(2, case["heads"], case["n"], case["d"]))
    value: Any = SimpleNamespace(shape=(2, 4, 64, 64), is_cuda=case["is_cuda"], dtype=case["dtype"])
    assert flash_linear.fits(query, value) is fits
    monkeypatch.setattr(flash_linear, "installed", lambda: False)
    assert not flash_linear.fits(query, value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("dtype", HALF)
def test_on_a_gpu(
    mechanism: type[RecurrentAttention], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own kernels, to the tolerance of two roundings of the data."""
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    for name in [name for name in sys.modules if name.partition(".")[0] == "fla"]:
        monkeypatch.delitem(sys.modules, name)
    pytest.importorskip("fla", reason="needs the extra fla")
    *tensors, gates = draw(mechanism, 200, dtype=torch.float32)
    tensors = [x.repeat(1, 1, 1, 16).to("cuda", dtype) for x in tensors]
    tensors[1] = unit(tensors[1])
    gates = {
        name: (gate.repeat(1, 1, 1, 16) if gate.ndim == 4 else gate).cuda()
        for name, gate in gates.items()
    }
    assert flash_linear.fits(tensors[0], tensors[2])
    out = mechanism()(*tensors, mask=CAUSAL, gates=gates)
    wide = {name: gate.double() for name, gate in gates.items()}
    exact = mechanism()(*(x.double() for x in tensors), mask=CAUSAL, gates=wide)
    error = (out.double() - exact).abs().max() / exact.abs().max()
    assert float(error) <= 4 * torch.finfo(dtype).eps
