"""The inverted index finds the documents that a scan finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regard.corpus.index import fold_words, invert

WORDS = st.sampled_from(["Ada", "ADA", "adá", "é", "e\u0301", "x1", "·", "中文", "ß", "SS"])
DOCUMENTS = st.lists(st.lists(WORDS, max_size=5).map(" ".join), max_size=6)


@settings(max_examples=50)
@given(DOCUMENTS, st.lists(WORDS.filter(str.isalnum), min_size=1, max_size=3))
def test_documents_of_words_are_those_of_a_scan(documents: list[str], words: list[str]) -> None:
    wanted = {folded for word in words for folded in fold_words(word)}
    expected = [i for i, text in enumerate(documents) if wanted <= set(fold_words(text))]
    assert invert(documents).documents(wanted) == expected


def test_no_words_are_in_no_document() -> None:
    assert invert(["Ada", ""]).documents([]) == []
    assert invert([]).documents(["ada"]) == []
