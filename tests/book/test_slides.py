"""What stands on each slide."""

from hypothesis import given
from hypothesis import strategies as st

from regard.book.slides import balanced

SIZES = st.lists(st.integers(1, 30), max_size=20)


@given(SIZES, st.integers(1, 60))
def test_groups_hold_all_items_in_order_within_the_limit(sizes: list[int], limit: int) -> None:
    groups = balanced(sizes, limit)
    assert [place for group in groups for place in group] == list(range(len(sizes)))
    for group in groups:
        assert len(group) == 1 or sum(sizes[place] for place in group) <= limit


@given(SIZES, st.integers(1, 60))
def test_no_two_neighbors_would_fit_together(sizes: list[int], limit: int) -> None:
    """Groups are as few as can be: of any pair, the greedy one is no smaller."""
    groups = balanced(sizes, limit)
    fewest, size = 0, limit + 1
    for one in sizes:
        fewest, size = (fewest + 1, one) if size + one > limit else (fewest, size + one)
    assert len(groups) == fewest


def test_groups_are_of_similar_size() -> None:
    assert balanced([1] * 9, 8) == [range(5), range(5, 9)]
    assert balanced([300, 500, 40, 40], 850) == [range(1), range(1, 4)]
