"""Bag-of-words baselines: naive Bayes and tf–idf."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import log, sqrt

import numpy as np
from jaxtyping import Float

from regard.errors import UserError
from regard.tasks.examples import Example


def bag(text: str) -> Counter[str]:
    """Return the counts of a text's words, in lower case and alphabetical order."""
    return Counter(sorted(re.findall(r"\w+", text.lower())))


def naive_bayes(training: Sequence[Example], texts: Sequence[str]) -> list[str]:
    """Return the label of each text by multinomial naive Bayes with add-one smoothing.

    As in Manning, Raghavan & Schütze, "Introduction to Information Retrieval", 2008, Fig. 13.2.
    Ties go to the first label in alphabetical order.

    Raises:
        UserError: there are no labels.
    """
    labeled = [(q.text, q.answer) for q in training if q.answer is not None]
    if not labeled:
        raise UserError("naive Bayes needs texts with labels for training")
    labels = Counter(label for _, label in labeled)
    words: dict[str, Counter[str]] = {label: Counter() for label in sorted(labels)}
    for text, label in labeled:
        words[label].update(bag(text))
    vocabulary = sorted(set().union(*words.values()))
    counts = np.array([[words[label][word] + 1 for word in vocabulary] for label in words])
    evidence = dict(zip(vocabulary, np.log(counts / counts.sum(1, keepdims=True)).T, strict=True))
    prior = np.log([labels[label] for label in words])

    def classify(text: str) -> str:
        known = (n * evidence[word] for word, n in bag(text).items() if word in evidence)
        return list(words)[int(np.argmax(sum(known, start=prior)))]

    return [classify(text) for text in texts]


def tf_idf(
    queries: Sequence[str], documents: Sequence[str]
) -> Float[np.ndarray, "queries documents"]:
    """Return the cosine similarity of the tf–idf vectors of each query and document.

    The weight of a word is its count times 1 + ln((1 + n) / (1 + m)) if m of n documents contain it
    (Salton & Buckley, 1988, smoothed). Words in no document are ignored.
    """
    bags = [bag(document) for document in documents]
    having = Counter(word for words in bags for word in words)
    rarity = {word: 1 + log((1 + len(bags)) / (1 + m)) for word, m in having.items()}
    index = defaultdict[str, dict[int, float]](dict)
    for i, words in enumerate(bags):
        for word, weight in _weights(words, rarity).items():
            index[word][i] = weight
    scores = np.zeros((len(queries), len(documents)))
    for row, query in zip(scores, queries, strict=True):
        for word, weight in _weights(bag(query), rarity).items():
            row[list(index[word])] += weight * np.array(list(index[word].values()))
    return scores


def _weights(words: Mapping[str, int], rarity: Mapping[str, float]) -> dict[str, float]:
    """Return tf–idf weights of words, with norm 1."""
    weights = {word: n * rarity[word] for word, n in words.items() if word in rarity}
    norm = sqrt(sum(weight**2 for weight in weights.values()))
    return {word: weight / norm for word, weight in weights.items()}
