"""Hypotheses: which go on, which come first, and in whose places they stand."""

from math import inf

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.beam_search import Hypotheses, continuations, stay

numbers = st.integers(1, 6)
parents = numbers.flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), min_size=n, max_size=n), min_size=1)
)


@given(rows=parents)
def test_as_many_as_can_stand_in_the_places_of_their_parents(rows: list[list[int]]) -> None:
    orders = stay(torch.tensor(rows)).tolist()
    for parent_of, order in zip(rows, orders, strict=True):
        assert sorted(order) == list(range(len(order)))
        stand = sum(parent_of[child] == place for place, child in enumerate(order))
        # A parent has one place, so no more of its children can stand there.
        assert stand == len(set(parent_of))


@given(
    scores=st.lists(
        st.lists(st.sampled_from([-inf, -2.0, -1.0, 0.0]), min_size=4, max_size=4), min_size=1
    ),
    n=st.integers(1, 4),
)
def test_the_best_come_first_and_of_equal_ones_the_first(scores: list[list[float]], n: int) -> None:
    values = torch.tensor(scores, dtype=torch.float64)
    hypotheses = Hypotheses(torch.zeros(*values.shape, 1, dtype=torch.long), values, values)
    expected = [sorted(range(4), key=lambda place: -row[place])[:n] for row in scores]
    assert hypotheses.best(n).tolist() == expected


@given(
    rows=st.integers(1, 3),
    n=st.integers(1, 4),
    vocabulary=st.integers(1, 5),
    most=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_continuations_are_the_best_of_all_sums(
    rows: int, n: int, vocabulary: int, most: int, seed: int
) -> None:
    """By the whole table of log-probabilities."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows * n, vocabulary, generator=generator, dtype=torch.float64)
    scores = torch.randn(rows, n, generator=generator, dtype=torch.float64)
    ids = torch.randint(0, 9, (rows, n, 2), generator=generator)
    found, places = continuations(Hypotheses(ids, scores, scores), logits, 1, most)
    table = scores[:, :, None] + logits.log_softmax(-1).view(rows, n, vocabulary)
    best, chosen = table.flatten(1).sort(dim=1, descending=True)
    # A handful of numbers below 10 are added up.
    eps = torch.finfo(torch.float64).eps
    torch.testing.assert_close(found.scores, best[:, :most], rtol=0, atol=64 * eps)
    assert torch.equal(found.log_probabilities, found.scores)
    assert torch.equal(places, chosen[:, :most] // vocabulary)
    assert torch.equal(found.ids[:, :, 1], chosen[:, :most] % vocabulary)
    assert torch.equal(found.ids[:, :, 0], ids[:, :, 0].gather(1, places))
