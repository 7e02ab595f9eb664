"""Texts whose structure is known."""

from hypothesis import given
from hypothesis import strategies as st

from regard.studies.trained_models.sentences import RELATIONS, labeled_texts, word_classes

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
    ((noun, its_verb),) = text.pairs["verb–object"]
    objects = {"poured": "tea", "printed": "book", "opened": "door", "baked": "bread"}
    assert words[noun] == objects[words[its_verb]]
    ((particle, before),) = text.pairs["previous word"]
    assert particle == before + 1


def test_every_word_has_at_most_one_class() -> None:
    words = [word for forms in word_classes().values() for form in forms for word in form]
    assert len(words) == len({*words})
    used = {word for text in labeled_texts(0, "any", 300) for word in text.words}
    function_words = {"the", "with", "and", "she", "he", "they", *".?!"}
    assert used - {*words} - function_words <= {"for", "at", "to", "about", "on", "of"}


def test_the_same_seed_gives_the_same_texts() -> None:
    assert labeled_texts(3, "training", 5) == labeled_texts(3, "training", 5)
    assert labeled_texts(3, "training", 5) != labeled_texts(3, "test", 5)
