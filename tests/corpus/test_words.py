"""Words are normalized alike; sentences end as defined; words find documents as a scan does."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regard.corpus.index import fold_words, invert, split_sentences, tokenize


def test_spellings_of_a_word_are_one() -> None:
    assert fold_words("ＭÜLLER ﬁsh") == fold_words("Mu\u0308ller FISH") == ["müller", "fish"]
    assert fold_words("Straße") == fold_words("STRASSE")


def test_punctuation_marks_are_tokens_and_spaces_are_not() -> None:
    assert fold_words("St.  Louis , Mo") == ["st", ".", "louis", ",", "mo"]
    assert fold_words("_Ada Finch_") == ["_", "ada", "finch", "_"]


def test_sentences_end_with_a_mark_and_a_space() -> None:
    sentences = split_sentences("Ada. Born in St. Ives!  Who? No 3.5.")
    assert [one.text for one in sentences] == ["Ada.", "Born in St.", "Ives!", "Who?", "No 3.5."]
    assert [one.offset for one in sentences] == [0, 5, 17, 24, 29]
    assert [one.text for one in split_sentences("")] == [""]


def test_tokens_have_their_place_in_the_sentence() -> None:
    sentences = split_sentences("A ﬁsh. Öl")
    tokens = tokenize(sentences)
    spelled = [sentences[one.sentence].text[one.start : one.end] for one in tokens]
    assert spelled == ["A", "fish", ".", "Öl"]
    assert [one.word for one in tokens] == ["a", "fish", ".", "öl"]
    assert [one.sentence for one in tokens] == [0, 0, 0, 1]


# The inverted index

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
