"""ROUGE, BLEU and chrF: against their definitions, counted by hand; and how texts become words."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from math import exp, log
from statistics import fmean
from string import printable

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.tokenize import tokenize  # type: ignore[import-untyped]

from regard.metrics import Interval, Score, bleu, bootstrap, chrf, rouge, words

EPS = float(np.finfo(float).eps)
checked = settings(deadline=None, derandomize=True, max_examples=25)
Corpus = list[tuple[str, str]]
CorpusMetric = Callable[..., Score]


def texts(least: int, most: int) -> st.SearchStrategy[str]:
    """Few words, so that some are repeated, and in another order."""
    word = st.sampled_from(["born", "in", "Leeds", "é", "1901"])
    return st.lists(word, min_size=least, max_size=most).map(" ".join)


def corpora(*, least: int = 0, most: int = 7) -> st.SearchStrategy[Corpus]:
    """Predicted texts and their references."""
    pair = st.tuples(texts(least, most), texts(least, most))
    return st.lists(pair, min_size=1, max_size=5)


def sides(corpus: Corpus) -> tuple[list[str], list[str]]:
    return [text for text, _ in corpus], [reference for _, reference in corpus]


def grams(items: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(items[i : i + n]) for i in range(len(items) - n + 1))


# Words


@checked
@given(st.text(alphabet=printable))
def test_words_of_ascii_text_are_those_of_rouge_score(text: str) -> None:
    assert words(text) == tokenize(text, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Родилась в Казани.", ["родилась", "в", "казани"]),
        ("Łódź, Ötz; E\u0301douard", ["łódź", "ötz", "e\u0301douard"]),
        ("我爱 ABC北京。", ["我", "爱", "abc", "北", "京"]),
        ("東京タワーへ", ["東", "京", "タ", "ワ", "ー", "へ"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("… — !", []),
    ],
)
def test_words_are_those_of_every_script(text: str, expected: list[str]) -> None:
    assert words(text) == expected


# ROUGE


def f1(shared: int, predicted: int, reference: int) -> float:
    return 2 * shared / (predicted + reference) if shared else 0.0


def rouge_n(text: str, reference: str, n: int) -> float:
    one, other = grams(text.lower().split(), n), grams(reference.lower().split(), n)
    return f1((one & other).total(), one.total(), other.total())


def rouge_l(text: str, reference: str) -> float:
    one, other = text.lower().split(), reference.lower().split()

    @cache
    def longest(i: int, j: int) -> int:
        """The longest common subsequence of what follows."""
        if i == len(one) or j == len(other):
            return 0
        if one[i] == other[j]:
            return 1 + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1))

    return f1(longest(0, 0), len(one), len(other))


@checked
@given(corpora())
def test_rouge_is_the_mean_f_measure_of_shared_n_grams_and_subsequences(corpus: Corpus) -> None:
    scores = rouge(*sides(corpus))
    expected = {
        "ROUGE-1": fmean(rouge_n(*pair, 1) for pair in corpus),
        "ROUGE-2": fmean(rouge_n(*pair, 2) for pair in corpus),
        "ROUGE-L": fmean(rouge_l(*pair) for pair in corpus),
    }
    # Precision, recall, their harmonic mean and a mean of five: each is rounded.
    assert {name: score.value for name, score in scores.items()} == pytest.approx(
        expected, rel=16 * EPS, abs=0
    )
    assert all(0 <= score.low <= score.high <= 1 for score in scores.values())


@pytest.mark.parametrize(
    "text",
    [
        "Ада Финч родилась в Казани.",
        "艾达·芬奇出生于利兹。",
        "एडा का जन्म लीड्स में हुआ",
    ],
)
def test_a_repeated_text_of_any_script_is_perfect(text: str) -> None:
    perfect = Interval(1.0, 1.0, 1.0)
    assert rouge([text], [text]) == dict.fromkeys(["ROUGE-1", "ROUGE-2", "ROUGE-L"], perfect)


# BLEU


def bleu_by_definition(corpus: Corpus) -> float:
    """Papineni et al. (2002), up to the longest n-grams there are; the k-th precision of zero
    counts as one match in 2ᵏ times as many n-grams (Chen & Cherry, 2014, smoothing 3).
    """
    pairs = [(text.split(), reference.split()) for text, reference in corpus]
    length = sum(len(text) for text, _ in pairs)
    reference_length = sum(len(reference) for _, reference in pairs)
    logarithms, zeros, any_match = [], 0, False
    for n in range(1, 5):
        matches = sum((grams(text, n) & grams(reference, n)).total() for text, reference in pairs)
        total = sum(grams(text, n).total() for text, _ in pairs)
        if not total:
            break
        any_match |= matches > 0
        zeros += matches == 0
        logarithms.append(log(matches / total if matches else 1 / (2**zeros * total)))
    if not any_match:
        return 0.0
    brevity = min(1.0, exp(1 - reference_length / length))
    return 100 * brevity * exp(fmean(logarithms))


@checked
@given(corpora())
def test_bleu_is_that_of_its_definition(corpus: Corpus) -> None:
    score = bleu(*sides(corpus)).interval
    # Logarithms below 5, added, through the exponential.
    assert score.value == pytest.approx(bleu_by_definition(corpus), rel=64 * EPS, abs=0)
    assert 0 <= score.low <= score.high <= 100 * (1 + 64 * EPS)


@checked
@given(corpora(least=4))
def test_bleu_of_texts_of_four_words_and_more_is_the_usual_one(corpus: Corpus) -> None:
    predicted, references = sides(corpus)
    usual = sacrebleu.BLEU().corpus_score(predicted, [references]).score
    assert bleu(predicted, references).interval.value == usual


# chrF


def chrf_by_definition(corpus: Corpus) -> float:
    """F₂ of the mean precision and mean recall of the orders that both sides have, in percent."""
    pairs = [("".join(a.split()), "".join(b.split())) for a, b in corpus]
    precisions, recalls = [], []
    for n in range(1, 7):
        counts = [(grams(a, n), grams(b, n)) for a, b in pairs]
        matches = sum((a & b).total() for a, b in counts)
        # In sacrebleu, n-grams longer than their reference are no mistakes.
        predicted = sum(a.total() for a, b in counts if b)
        reference = sum(b.total() for _, b in counts)
        if predicted and reference:
            precisions.append(matches / predicted)
            recalls.append(matches / reference)
    if not any(precisions):
        return 0.0
    precision, recall = fmean(precisions), fmean(recalls)
    return 100 * 5 * precision * recall / (4 * precision + recall)


@checked
@given(corpora(most=4))
def test_chrf_is_that_of_its_definition(corpus: Corpus) -> None:
    score = chrf(*sides(corpus)).interval
    # Means of six quotients, and a quotient of their products.
    assert score.value == pytest.approx(chrf_by_definition(corpus), rel=32 * EPS, abs=0)
    assert 0 <= score.low <= score.high <= 100 * (1 + 32 * EPS)


# Of both


@pytest.mark.parametrize("metric", [bleu, chrf])
@pytest.mark.parametrize("corpus", [["in Leeds", "Łódź"], ["我"], ["born in Leeds , 1901 ."] * 200])
def test_repeated_texts_score_100_however_short(metric: CorpusMetric, corpus: list[str]) -> None:
    interval = metric(corpus, corpus).interval
    for value in (interval.value, interval.low, interval.high):
        # exp(log 100) is rounded.
        assert value == pytest.approx(100, rel=16 * EPS)


PAIRS = [
    ("Ada Finch was born in Leeds", "Ada Finch was born in Leeds"),
    ("Otto Lange was born in Rill", "Otto Lange came from Leeds"),
    ("in 1901", "in 1902"),
    ("", "She wrote"),
]


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [(bleu, sacrebleu.BLEU(effective_order=True)), (chrf, sacrebleu.CHRF())],
)
def test_the_interval_is_that_of_resampled_texts(
    metric: CorpusMetric, theirs: sacrebleu.BLEU | sacrebleu.CHRF
) -> None:
    """Adding up counts is the same as scoring the texts again."""

    def score(numbers: np.ndarray) -> float:
        predicted, references = sides([PAIRS[i] for i in numbers])
        return float(theirs.corpus_score(predicted, [references]).score)

    expected = bootstrap(np.arange(len(PAIRS)), score, seed=3)
    assert metric(*sides(PAIRS), seed=3).interval == expected
    assert expected.low < expected.value < expected.high


@pytest.mark.parametrize(
    ("metric", "options"),
    [(bleu, "eff:yes|tok:13a|smooth:exp"), (chrf, "eff:yes|nc:6|nw:0|space:no")],
)
def test_the_signature_tells_how_it_was_measured(metric: CorpusMetric, options: str) -> None:
    expected = f"nrefs:1|case:mixed|{options}|version:{sacrebleu.__version__}"
    assert metric(*sides(PAIRS)).signature == expected


def test_a_corpus_that_comes_in_words_calls_for_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bleu(["born in Leeds ."] * 100, ["born in Leeds ."] * 100)
    assert not caplog.records


def test_nothing_is_fetched() -> None:
    """NLTK, which rouge-score imports, likes to load data."""
    code = """
import sys

def refuse(event, _):
    if event.startswith(("socket.", "urllib.")):
        sys.exit(event)

sys.addaudithook(refuse)
from regard.metrics import bleu, chrf, rouge
for metric in (bleu, chrf, rouge):
    metric(["Ada Finch"], ["Ada Finch"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
