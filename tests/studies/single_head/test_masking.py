"""The study `masking`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.studies.finding import Verdict
from regard.studies.single_head.attention_maps import (
    four_masks,
    masking,
    weights_for_equal_scores,
)
from tiny_studies import verdict

TEXTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4)


@given(TEXTS, st.data())
def test_the_maps_are_what_their_names_say(
    texts: list[tuple[int, int]], data: st.DataObject
) -> None:
    sources, targets = (tuple(lengths) for lengths in zip(*texts, strict=True))
    row = data.draw(st.integers(1, len(texts)))
    source, target = texts[row - 1]
    n, m = range(max(sources)), range(max(targets))
    expected = {
        "encoder padding": [[j < length for j in n] for length in sources],
        "decoder padding": [[j < length for j in m] for length in targets],
        "cross-attention": [[j < source for j in n] for _ in m],
        "decoder self-attention": [[j <= i and j < target for j in m] for i in m],
    }
    masks = four_masks(sources, targets, row)
    assert masks.keys() == expected.keys()
    for name, (mask, queries, keys, allowed) in masks.items():
        attended = weights_for_equal_scores(mask, queries, keys) > 0
        assert attended.tolist() == expected[name]
        assert int(attended.sum()) == allowed


@pytest.mark.parametrize("seed", [f"seed={seed}" for seed in range(3)])
def test_the_verdict(seed: str) -> None:
    assert verdict(masking, seed) is Verdict.HOLDS
    assert verdict(masking, seed, "hidden=1", "row=3") is Verdict.HOLDS
    assert verdict(masking, seed, "size=1000") is Verdict.FAILS, "nothing is left to divide by"


def test_other_ways_of_hiding_hide_too_little() -> None:
    measured = {number.name: number.measured for number in masking().numbers}
    assert measured["weight of the masked token, score −∞"] == 0
    assert measured["mean weight of the masked token, score 0"] > 0.05
    assert measured["smallest sum over keys, not renormalized"] < 0.9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("row=5", "there are 4 texts"),
        ("hidden=9", "the longest source has 8"),
        ("sources=[1,1,1,1]", "use at least two in one of them"),
        ("targets=[3]", "1 for 4 sources"),
        ("sources=[0,1,2,3]", "sources.* >= 1"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(wrong: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        masking.with_texts([wrong])
