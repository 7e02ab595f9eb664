"""A random text, read twice."""

from dataclasses import replace

import pytest
import torch
from test_look import run

from regard.errors import UserError
from regard.explorer.maps import Map
from regard.explorer.repeats import read_twice, repeat_scores


def with_weights(one: Map, weights: torch.Tensor) -> Map:
    """The map with a matrix for all heads of its layers."""
    heads = len(one.layers[0].heads)
    layers = [
        replace(layer, captured=replace(layer.captured, weights=weights.expand(1, heads, -1, -1)))
        for layer in one.layers
    ]
    return replace(one, layers=tuple(layers))


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_the_same_tokens_come_twice(family: str) -> None:
    made = run(family)
    one = read_twice(made, 7, seed=3)
    assert one.second is not None
    begin = one.second - 7
    assert one.keys[begin : one.second] == one.keys[one.second :]
    assert len(one.keys) == begin + 14
    assert one.keys == read_twice(made, 7, seed=3).keys
    assert one.keys != read_twice(made, 7, seed=4).keys
    assert not {"□", "⁇"} & set(one.keys[begin:])


@pytest.mark.parametrize(("behind", "name"), [(0, "duplicate twice"), (1, "induction twice")])
@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_planted_heads_are_found(family: str, behind: int, name: str) -> None:
    """With and without a token that begins the text."""
    one = read_twice(run(family), 5)
    n = len(one.keys)
    places = torch.arange(n)
    planted = torch.eye(n)[(places - 5 + behind).clamp(min=0)]
    scores = repeat_scores(with_weights(one, planted))
    for other, found in scores.items():
        assert found.tolist() == [float(other == name)] * len(found)
    assert len(scores[name]) == sum(len(layer.heads) for layer in one.layers)


def test_two_rows_must_fit_the_model() -> None:
    made = run("decoder")
    assert len(read_twice(made).keys) <= 32
    with pytest.raises(UserError, match="--random 17: the model reads"):
        read_twice(made, 17)
