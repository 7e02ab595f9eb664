"""Texts whose structure is known."""

from hypothesis import given
from hypothesis import strategies as st

from regard.studies.trained_models.sentences import RELATIONS, labeled_texts

MARKS = {".": "sic", "?": "pmp", "!": "abh"}
"""Marks and the first letters of the words that open their sentences."""


@given(st.integers(0, 10_000))
def test_each_word_depends_on_the_one_that_is_named(seed: int) -> None:
    (text,) = labeled_texts(seed, "any", 1)
    words = text.words
    assert set(text.pairs) == set(RELATIONS)
    ((verb, subject),) = text.pairs["subject–verb"]
    assert words[verb].endswith("s") != words[subject].endswith("s")
    ((pronoun, name),) = text.pairs["pronoun"]
    assert words[pronoun] in ("she", "he", "they")
    assert (words[pronoun] == "they") == words[name].islower()
    for mark, start in text.pairs["sentence start"]:
        assert words[start][0] in MARKS[words[mark]]
    ((particle, before),) = text.pairs["previous word"]
    assert particle == before + 1


def test_the_same_seed_gives_the_same_texts() -> None:
    assert labeled_texts(3, "training", 5) == labeled_texts(3, "training", 5)
    assert labeled_texts(3, "training", 5) != labeled_texts(3, "test", 5)
