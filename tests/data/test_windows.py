"""Windows of the documents of a token store."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import IGNORE
from regard.data.batch import RowFormat
from regard.data.windows import VALIDATION_TOKENS, HeldOutWindows, TokenStream, Windows

PAD, BLOCK = 0, 8
documents = st.lists(st.lists(st.integers(1, 50), max_size=9), min_size=1, max_size=6)


def stream_of(texts: list[list[int]], separator: list[int]) -> TokenStream:
    lengths = np.array([len(text) for text in texts])
    ids = np.array([i for text in texts for i in text], dtype="<u2")
    return TokenStream(ids, np.cumsum(lengths) - lengths, separator)


@given(documents, st.lists(st.integers(90, 99), max_size=3), st.data())
def test_a_stream_is_all_documents_joined(
    texts: list[list[int]], separator: list[int], data: st.DataObject
) -> None:
    stream = stream_of(texts, separator)
    joined = list(texts[0])
    for text in texts[1:]:
        joined += [*separator, *text]
    assert len(stream) == len(joined)
    place = st.integers(0, len(joined) + 2)
    first, last = data.draw(place), data.draw(place)
    assert stream.read(first, last).tolist() == joined[first:last]
    cut = data.draw(st.integers(0, len(joined)))
    parts = stream.split(cut)
    assert [part.read(0, len(joined)).tolist() for part in parts] == [joined[:cut], joined[cut:]]
    assert parts[1].read(first, last).tolist() == joined[cut:][first:last]


@settings(max_examples=30)
@given(st.integers(2, 60), st.integers(0, 9))
def test_windows_cover_a_text(length: int, seed: int) -> None:
    text = list(range(100, 100 + length))
    windows = Windows(stream_of([text], []), RowFormat(BLOCK, PAD))
    covered: set[int] = set()
    rng = np.random.default_rng(seed)
    for _ in range(40):
        for index in range(len(windows)):
            ids = windows.example(index, rng).tolist()
            assert ids == text[ids[0] - 100 :][: BLOCK + 1]
            covered.update(ids)
    assert covered == set(text)


@given(st.integers(0, 60))
def test_held_out_windows_predict_every_token_but_the_first_once(length: int) -> None:
    text = list(range(1, 1 + length))
    windows = HeldOutWindows(stream_of([text], []), RowFormat(BLOCK, PAD))
    rows = [windows.example(i, np.random.default_rng(0)) for i in range(len(windows))]
    assert windows.lengths().tolist() == [len(row) for row in rows]
    if not rows:
        assert length < 2
        return
    batch = windows.collate(rows)
    predicted = batch.labels[batch.labels != IGNORE]
    assert predicted.tolist() == text[1:]
    assert batch.input_ids[batch.labels != IGNORE].tolist() == text[:-1]


def test_validation_is_of_bounded_size() -> None:
    stream = TokenStream(np.arange(5 * VALIDATION_TOKENS), np.zeros(1, int))
    windows = HeldOutWindows(stream, RowFormat(64, PAD))
    assert 0 < len(windows) * 64 <= VALIDATION_TOKENS
    assert windows.rows[-1] > 4 * VALIDATION_TOKENS
