"""Attention alone, looked at."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import Attention, Differential, KernelAttention, Mask, Softmax
from regard.attention.feature_maps import Elu
from regard.errors import UserError
from regard.explorer.from_tensors import look_at_attention
from regard.explorer.intercept import MismatchError


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.booleans())
def test_it_shows_the_weights_of_the_mechanism(n: int, m: int, heads: int, exact: bool) -> None:
    generator = torch.Generator().manual_seed(n * m)
    query = torch.randn(1, heads, n, 4, generator=generator)
    key, value = torch.randn(2, 1, heads, m, 4, generator=generator)
    mechanism: Attention = Softmax() if exact else KernelAttention(Elu())
    mask = Mask.causal() if exact and m > n > 1 else None
    view = look_at_attention(mechanism, query, key, value, title="by hand", mask=mask)
    (panel,) = view.panels
    (shown,) = panel.maps
    assert (len(shown.queries), len(shown.keys)) == (n, m)
    # Exact: the same operations on the same shapes.
    expected = mechanism.weights(query, key, mask=mask)
    torch.testing.assert_close(shown.layers[0].record.weights, expected, atol=0, rtol=0)
    (detail,) = view.data["panels"][0]["details"]
    names = ["q·k", "÷ √d"] if exact else ["q·k"]
    names += ["masked"] if mask else []
    assert [step["name"] for step in detail["steps"]] == [*names, "weight"]


class Half(Differential):
    """A₁ − ½ A₂."""

    gates = ()  # type: ignore[assignment]

    def _lambda(self, dtype: torch.dtype, **_: Tensor) -> Tensor:
        return torch.tensor(0.5, dtype=dtype)


def test_two_queries_of_a_head_are_one_head() -> None:
    query, (key, value) = torch.zeros(1, 4, 3, 4), torch.zeros(2, 1, 2, 3, 4)
    view = look_at_attention(Half(), query, key, value, title="by hand")
    assert view.panels[0].maps[0].layers[0].heads == (0, 1)


def test_rows_have_the_names_that_they_are_given() -> None:
    x = torch.eye(3)[None, None]
    view = look_at_attention(
        Softmax(), x[:, :, :1], x, x, title="by hand", queries=["q"], keys=["a", "b", "c"]
    )
    (shown,) = view.panels[0].maps
    assert (shown.queries, shown.keys) == (("q",), ("a", "b", "c"))


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c", "d"]])
def test_each_token_needs_a_name(names: list[str]) -> None:
    x = torch.eye(3)[None, None]
    for queries, keys in ((names, []), ([], names)):
        with pytest.raises(UserError, match=f"{len(names)} names for 3 tokens"):
            look_at_attention(Softmax(), x, x, x, title="by hand", queries=queries, keys=keys)


class Doubled(Softmax):
    """Weights that aren't those that it applies."""

    def weights(self, *args: torch.Tensor, **kwargs: object) -> torch.Tensor:
        return 2 * super().weights(*args, **kwargs)  # type: ignore[arg-type]


def test_a_mechanism_that_does_something_else_is_not_shown() -> None:
    x = torch.eye(3)[None, None]
    with pytest.raises(MismatchError, match="off the kernel's output"):
        look_at_attention(Doubled(), x, x, x, title="by hand")


def test_names_of_tokens_are_no_formulas(tmp_path: Path) -> None:
    x, names = torch.eye(2)[None, None], ["$$", "a$b$c"]
    view = look_at_attention(Softmax(), x, x, x, title="by hand", queries=names, keys=names)
    view.png(tmp_path / "x.png")
    assert (tmp_path / "x.png").is_file()
