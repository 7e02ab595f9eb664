"""The baselines against their definitions, spelled out."""

from collections import Counter
from fractions import Fraction
from math import log, prod, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tasks.bag_of_words import bag, naive_bayes, tf_idf
from regard.tasks.examples import Example

texts = st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join)
labeled = st.lists(
    st.builds(Example, text=texts, answer=st.sampled_from(["no", "so", "yes"])),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, the CAT!", {"the": 2, "cat": 2}),
        ("Größe 3", {"größe": 1, "3": 1}),
        ("кот и кот", {"кот": 2, "и": 1}),
        ("…", {}),
    ],
)
def test_a_bag_holds_words(text: str, words: dict[str, int]) -> None:
    assert bag(text) == words


@given(labeled, st.lists(texts, max_size=4))
def test_naive_bayes_says_the_likeliest_label(training: list[Example], asked: list[str]) -> None:
    vocabulary = {word for question in training for word in question.text.split()}

    def likelihood(text: str, label: str | None) -> Fraction:
        own = [question.text for question in training if question.answer == label]
        words = Counter(" ".join(own).split())
        seen = (word for word in text.split() if word in vocabulary)
        total = sum(words.values()) + len(vocabulary)
        return len(own) * prod((Fraction(words[w] + 1, total) for w in seen), start=Fraction(1))

    for text, said in zip(asked, naive_bayes(training, asked), strict=True):
        best = max(likelihood(text, question.answer) for question in training)
        # Sums of logarithms are rounded, the fractions are not.
        assert likelihood(text, said) >= best * (1 - Fraction(1, 10**12))


@given(labeled, texts)
def test_naive_bayes_learns_nothing_where_there_is_no_label(
    training: list[Example], text: str
) -> None:
    unlabeled = [Example(text="a b"), Example(text="e")]
    assert naive_bayes([*training, *unlabeled], ["a e", text]) == naive_bayes(
        training, ["a e", text]
    )
    with pytest.raises(UserError, match="needs texts with labels"):
        naive_bayes(unlabeled, [text])


@given(st.lists(texts, max_size=4), st.lists(texts, min_size=1, max_size=6))
def test_tf_idf_is_the_cosine_of_weighted_words(queries: list[str], documents: list[str]) -> None:
    n = len(documents)
    having = {word: sum(word in d.split() for d in documents) for word in "abcd"}
    rarity = {word: 1 + log((1 + n) / (1 + m)) for word, m in having.items() if m}

    def vector(text: str) -> list[float]:
        return [text.split().count(word) * rarity.get(word, 0) for word in "abcd"]

    def cosine(a: list[float], b: list[float]) -> float:
        norms = sqrt(sum(x * x for x in a)) * sqrt(sum(x * x for x in b))
        return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 0

    scores = tf_idf(queries, documents)
    assert scores.shape == (len(queries), len(documents))
    expected = [[cosine(vector(q), vector(d)) for d in documents] for q in queries]
    np.testing.assert_allclose(scores, np.reshape(expected, scores.shape), rtol=1e-13, atol=1e-15)
