"""Lists of layers and heads, as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.explorer.attention_maps import parse_index_ranges

ends = st.integers(0, 9999)


@given(st.lists(st.tuples(ends, st.integers(0, 20)), min_size=1, max_size=5), st.booleans())
def test_what_is_written_is_read(parts: list[tuple[int, int]], spaced: bool) -> None:
    wanted = [(first, min(first + more, 9999)) for first, more in parts]
    text = ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in wanted)
    found = parse_index_ranges("--layers", text.replace(",", " , ") if spaced else text)
    assert found == [i for a, b in wanted for i in range(a, b + 1)]


@pytest.mark.parametrize(
    "text", ["", "x", "2-x", "1,", ",1", "1-2-3", "-1", "4-3", "1;2", "²", "1-99999999"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"--heads {text}: is not a list of numbers"):
        parse_index_ranges("--heads", text)
