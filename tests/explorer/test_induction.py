"""A random text, read twice."""

from dataclasses import replace

import pytest
import torch
from test_look import run

from regard.errors import UserError
from regard.explorer.induction import RepeatedSequence, attend_repeated_sequence, induction_scores
from regard.explorer.look import adapter_of


def twice_by(family: str, *wishes: int, seed: int = 0) -> RepeatedSequence:
    return attend_repeated_sequence(adapter_of(run(family)), *wishes, seed=seed)


def with_weights(twice: RepeatedSequence, weights: torch.Tensor) -> RepeatedSequence:
    """The same with a matrix for all heads of its layers."""
    one = twice.map
    heads = len(one.layers[0].heads)
    layers = [
        replace(layer, record=replace(layer.record, weights=weights.expand(1, heads, -1, -1)))
        for layer in one.layers
    ]
    return replace(twice, map=replace(one, layers=tuple(layers)))


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_the_same_tokens_come_twice(family: str) -> None:
    twice = twice_by(family, 7, seed=3)
    keys, begin = twice.map.keys, twice.tokens.start
    assert twice.map.second == begin + 7
    assert keys[begin : begin + 7] == keys[begin + 7 :]
    assert twice.tokens.stop == len(keys) == begin + 14
    assert keys == twice_by(family, 7, seed=3).map.keys
    assert keys != twice_by(family, 7, seed=4).map.keys
    assert not {"□", "⁇"} & set(keys[begin:])


@pytest.mark.parametrize(("behind", "name"), [(0, "duplicate twice"), (1, "induction twice")])
@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_planted_heads_are_found(family: str, behind: int, name: str) -> None:
    """With and without a token that begins the text."""
    twice = twice_by(family, 5)
    n = len(twice.map.keys)
    places = torch.arange(n)
    planted = torch.eye(n)[(places - 5 + behind).clamp(min=0)]
    scores = induction_scores(with_weights(twice, planted))
    for other, found in scores.items():
        assert found.tolist() == [float(other == name)] * len(found)
    assert len(scores[name]) == sum(len(layer.heads) for layer in twice.map.layers)


def test_two_rows_must_fit_the_model() -> None:
    assert len(twice_by("decoder").map.keys) <= 32
    with pytest.raises(UserError, match="--random 17: the sequence occurs twice"):
        twice_by("decoder", 17)
