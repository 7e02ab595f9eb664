"""Words are normalized alike however they are written; sentences end as in the definition."""

from regard.corpus.index import fold_words, split_sentences, tokenize


def test_spellings_of_a_word_are_one() -> None:
    assert fold_words("ＭÜLLER ﬁsh") == fold_words("Mu\u0308ller FISH") == ["müller", "fish"]
    assert fold_words("Straße") == fold_words("STRASSE")


def test_punctuation_marks_are_tokens_and_spaces_are_not() -> None:
    assert fold_words("St.  Louis , Mo") == ["st", ".", "louis", ",", "mo"]


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
