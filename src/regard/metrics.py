"""Metrics: pure functions from predictions to scores with confidence intervals."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice, repeat
from math import exp, sqrt
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from unicodedata import category

import numpy as np
from jaxtyping import Float, Int

from regard.errors import require_packages

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

Z95 = 1.959963984540054
"""The two-sided 95 % point of the normal distribution."""
DRAWS = 1000
"""Number of resamples of a bootstrap."""
HIGHEST = dict.fromkeys(
    (
        *("accuracy", "exact match", "whole rows", "macro F1", "ROUGE-1", "ROUGE-2", "ROUGE-L"),
        *("recall@1", "recall@5", "recall@10", "MRR"),
    ),
    1.0,
) | {"BLEU": 100.0, "chrF": 100.0}
"""Highest possible value of each score of a task; the lowest is 0."""


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def percent(self) -> str:
        """Return value and interval in percent, as text."""
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}]"


def wilson(successes: float, n: int) -> Interval:
    """Return a share with Wilson's score interval (Wilson, 1927), also good near 0 and 1."""
    if n < 1:
        raise ValueError("a share needs at least one trial")
    share = successes / n
    center = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    return Interval(share, max(0.0, min(share, center - half)), min(1.0, max(share, center + half)))


def bootstrap(
    examples: Sequence[float] | Float[np.ndarray, "n *rest"],
    statistic: Callable[[np.ndarray], float],
    *,
    seed: int = 0,
    draws: int = DRAWS,
    defined: Callable[[np.ndarray], bool] = lambda _: True,
) -> Interval:
    """A statistic with its percentile interval over resampled examples (Efron, 1979).

    Resamples for which the statistic isn't `defined` are drawn again.

    Raises:
        ValueError: there are no examples.
    """
    values = np.asarray(examples)
    if not len(values):
        raise ValueError("an interval needs at least one example")
    rng = np.random.default_rng(seed)
    drawn = (values[rng.integers(0, len(values), len(values))] for _ in repeat(None))
    kept = islice(filter(defined, drawn), draws)
    low, high = np.quantile([statistic(one) for one in kept], [0.025, 0.975])
    return Interval(float(statistic(values)), float(low), float(high))


def bootstrap_means(examples: Float[np.ndarray, "n columns"]) -> list[Interval]:
    """The mean of each column with the interval that `bootstrap` gives."""
    return intervals_of(examples.mean(0), resampled_means(examples))


def resampled_means(examples: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, "draws columns"]:
    """Means of the columns over resampled examples, those of `bootstrap`."""
    n = len(examples)
    picks = np.random.default_rng(0).integers(0, n, (DRAWS, n))
    shares = np.zeros((DRAWS, n))
    np.add.at(shares, (np.arange(DRAWS)[:, None], picks), 1 / n)
    found: np.ndarray = shares @ examples
    return found


def intervals_of(
    values: Float[np.ndarray, " columns"], draws: Float[np.ndarray, "draws columns"]
) -> list[Interval]:
    """Values with the percentile intervals of their draws."""
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return [Interval(*map(float, one)) for one in zip(values, low, high, strict=True)]


# Answers, and how well confidence predicts that they are right


def exact_match(predicted: str | None, answer: str) -> bool:
    """Whether both texts are equal, except for white space at the ends."""
    return predicted is not None and predicted.strip() == answer.strip()


def accuracy(correct: Sequence[bool]) -> Interval:
    """The share of right answers."""
    return wilson(sum(correct), len(correct))


def perplexity(losses: Sequence[float], counts: Sequence[int], *, seed: int = 0) -> Interval:
    """exp of the mean loss per token, from each document's summed loss and number of tokens."""
    pairs = np.column_stack([losses, counts])
    return bootstrap(pairs, lambda rows: exp(rows[:, 0].sum() / rows[:, 1].sum()), seed=seed)


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Probability that a positive scores above a negative, ties counting half (Mann–Whitney)."""
    from scipy.stats import rankdata  # here, as it takes half a second to import

    if not len(positive) or not len(negative):
        raise ValueError("AUROC needs both positives and negatives")
    place = rankdata(np.concatenate([positive, negative]))
    n = len(positive)
    return float((place[:n].sum() - n * (n + 1) / 2) / (n * len(negative)))


def auroc_interval(positive: Sequence[float], negative: Sequence[float]) -> Interval:
    """Return the AUROC with DeLong's 95 % interval (DeLong et al., 1988; ranks: Sun & Xu, 2014).

    Where all pairs are in order, or all are tied, DeLong's variance is 0. The interval is then
    Wilson's, with the members of the smaller group as trials.

    Raises:
        ValueError: a group has fewer than two members.
    """
    from scipy.stats import rankdata

    m, n = len(positive), len(negative)
    if min(m, n) < 2:
        raise ValueError("an interval of AUROC needs two positives and two negatives")
    area = auroc(positive, negative)
    ranks = rankdata(np.concatenate([positive, negative]))
    above = (ranks[:m] - rankdata(positive)) / n  # share of negatives below each positive
    below = 1 - (ranks[m:] - rankdata(negative)) / m  # share of positives above each negative
    half = Z95 * sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
    if half == 0:
        return wilson(area * min(m, n), min(m, n))
    return Interval(area, max(0.0, area - half), min(1.0, area + half))


def risk_coverage(
    confidence: Sequence[float], correct: Sequence[bool]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the share of wrong answers among the most confident share of questions.

    Answers of equal confidence are taken together, as their mean error.

    Returns:
        Coverage, from 1/n to 1, and the risk at each (El-Yaniv & Wiener, 2010).
    """
    scores, wrong = np.asarray(confidence), ~np.asarray(correct, dtype=bool)
    order = np.argsort(-scores, kind="stable")
    level = np.unique(-scores[order], return_inverse=True)[1]
    errors = (np.bincount(level, wrong[order]) / np.bincount(level))[level]
    n = np.arange(1, len(scores) + 1)
    return n / len(scores), np.cumsum(errors) / n


# Classes

Label = TypeVar("Label", int, str)


def macro_f1(predicted: Sequence[Label], true: Sequence[Label], *, seed: int = 0) -> Interval:
    """The mean F1 of all classes that are predicted or true; 0 for one that is never right.

    The averaged F1 of Opitz & Burst (2019), not their F1 of averages.

    Raises:
        ValueError: there are no examples, or not one prediction for each.
    """
    return bootstrap(numbered(predicted, true)[1], _macro_f1, seed=seed)


def confusion(
    predicted: Sequence[Label], true: Sequence[Label]
) -> tuple[list[Label], Int[np.ndarray, "classes classes"]]:
    """Confusion matrix: counts of each true and predicted class.

    Returns:
        The classes in order, and the counts: a row for each true class, a column for each
        predicted.

    Raises:
        ValueError: there isn't one prediction for each example.
    """
    labels, pairs = numbered(predicted, true)
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(counts, (pairs[:, 1], pairs[:, 0]), 1)
    return labels, counts


def _macro_f1(pairs: Int[np.ndarray, "examples 2"]) -> float:
    """F1 = 2 · true positives / (predicted + true); a resample may lack classes."""
    predicted, true = pairs.T
    seen = np.bincount(pairs.ravel())
    right = np.bincount(true[predicted == true], minlength=len(seen))
    return float((2 * right[seen > 0] / seen[seen > 0]).mean())


def numbered(
    predicted: Sequence[Label], true: Sequence[Label]
) -> tuple[list[Label], Int[np.ndarray, "examples 2"]]:
    """The classes that occur in either, in order, and predicted and true ones as their numbers.

    Raises:
        ValueError: there isn't one prediction for each example.
    """
    labels = sorted(set(predicted) | set(true))
    numbers = {label: number for number, label in enumerate(labels)}
    pairs = [(numbers[p], numbers[t]) for p, t in zip(predicted, true, strict=True)]
    return labels, np.array(pairs, dtype=int).reshape(-1, 2)


# Tags: one for each word; the words of one text are resampled together

Tags = Sequence[Sequence[str]]
"""The tags of each text's words."""


def tag_accuracy(predicted: Tags, true: Tags, *, seed: int = 0) -> Interval:
    """The share of words whose tag is right; a word without a predicted one is wrong.

    Raises:
        ValueError: there are no texts, or not one prediction for each.
    """
    return bootstrap(_tag_counts(predicted, true), _tag_accuracy, seed=seed)


def tag_macro_f1(predicted: Tags, true: Tags, *, seed: int = 0) -> Interval:
    """The mean F1 of all tags that are predicted or true; 0 for one that is never right.

    Raises:
        ValueError: there are no texts, or not one prediction for each.
    """
    return bootstrap(_tag_counts(predicted, true), _tag_macro_f1, seed=seed)


def _tag_counts(predicted: Tags, true: Tags) -> Int[np.ndarray, "texts tags 3"]:
    """Counts of each tag per text: right, predicted and true."""
    kinds = sorted({tag for text in (*predicted, *true) for tag in text})
    place = {tag: i for i, tag in enumerate(kinds)}
    counts = np.zeros((len(true), len(kinds), 3), dtype=int)
    for of_text, said, right in zip(counts, predicted, true, strict=True):
        for a, b in zip(said, right, strict=False):
            of_text[place[b], 0] += a == b
        for column, tags in ((1, said), (2, right)):
            np.add.at(of_text[:, column], [place[tag] for tag in tags], 1)
    return counts


def _tag_accuracy(counts: Int[np.ndarray, "texts tags 3"]) -> float:
    right, _, true = counts.sum((0, 1))
    return float(right / true)


def _tag_macro_f1(counts: Int[np.ndarray, "texts tags 3"]) -> float:
    """F1 = 2 · right / (predicted + true); a resample may lack tags."""
    right, said, true = counts.sum(0).T
    seen = said + true > 0
    return float((2 * right[seen] / (said + true)[seen]).mean())


# Rankings: the rank of the right document


def ranks(
    scores: Float[np.ndarray, "queries documents"], right: Int[np.ndarray, " queries"]
) -> Int[np.ndarray, " queries"]:
    """The rank of each query's right document, 1 for the best.

    Documents that don't score lower are ranked before it: ties and NaN count against it, so that a
    model with equal scores finds nothing.
    """
    own = np.take_along_axis(scores, right[:, None], axis=1)
    return np.asarray((~(scores < own)).sum(axis=1))


def recall_at(ranks: Int[np.ndarray, " queries"], k: int) -> Interval:
    """The share of queries whose right document is among the first k.

    Raises:
        ValueError: there are no queries.
    """
    return wilson(int((ranks <= k).sum()), len(ranks))


def mean_reciprocal_rank(ranks: Int[np.ndarray, " queries"], *, seed: int = 0) -> Interval:
    """The mean of 1/rank (Voorhees, 1999).

    Raises:
        ValueError: there are no queries.
    """
    return bootstrap(1 / ranks, np.mean, seed=seed)


# Texts: overlap of predictions with references

_MARKS = "".join(c for c in map(chr, range(0x2000)) if category(c).startswith("M"))
"""Accents and vowel signs of nearly all scripts, which \\w leaves out: हिन्दी is one word."""
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Kana and Chinese characters."""
_WORD = re.compile(rf"(?:[^\W_{_UNSPACED}][{_MARKS}]*)+|[^\W_][{_MARKS}]*")
_ROUGE = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL"}


@dataclass(frozen=True)
class Score:
    """The score of a corpus, from 0 to 100, and what sacrebleu measured (Post, 2018)."""

    interval: Interval
    signature: str


def words(text: str) -> list[str]:
    """Return the words of a text, sequences of letters and digits, in lower case.

    Chinese and Japanese, which put no spaces between words, are split into characters.
    """
    return _WORD.findall(text.lower())


def rouge(
    predicted: Sequence[str], references: Sequence[str], *, seed: int = 0
) -> dict[str, Interval]:
    """ROUGE-1, ROUGE-2 and ROUGE-L: the mean F-measure, from 0 to 1 (Lin, 2004, §2 and §3).

    By rouge-score without stemming, but on our `words`, since its own consist of a to z alone. As
    there, ROUGE-2 of texts with a single word is 0, even if they are equal, and all scores of texts
    without words are 0.

    Raises:
        UserError: the extra `metrics` isn't installed.
        ValueError: there are no texts, or not one reference for each.
    """
    # Here, as it imports nltk, which takes a third of a second.
    scoring = _library("rouge_score.rouge_scorer")
    scorer = scoring.RougeScorer(list(_ROUGE.values()), tokenizer=SimpleNamespace(tokenize=words))
    pairs = zip(predicted, references, strict=True)
    scores = [scorer.score(reference, text) for text, reference in pairs]
    return {
        name: bootstrap([score[key].fmeasure for score in scores], np.mean, seed=seed)
        for name, key in _ROUGE.items()
    }


def bleu(predicted: Sequence[str], references: Sequence[str], *, seed: int = 0) -> Score:
    """BLEU of a corpus (Papineni et al., 2002, §2.3).

    N-grams of up to four words count, but none longer than the longest text predicted: answers of
    three words have no four-grams, and would score 0 though all were right. Where a text of four
    words is predicted, this is the usual BLEU. Words are those of WMT (13a); Chinese and Japanese,
    which it doesn't split, are better measured by `chrf`.

    Raises:
        UserError: the extra `metrics` isn't installed.
        ValueError: there are no texts, or not one reference for each.
    """
    # Forced, without a warning for texts that are tokenized, such as WikiText.
    metric = _library("sacrebleu").BLEU(effective_order=True, force=True)
    return _corpus_score(metric, predicted, references, seed)


def chrf(predicted: Sequence[str], references: Sequence[str], *, seed: int = 0) -> Score:
    """chrF of a corpus: F₂ of n-grams of one to six characters (Popović, 2015; 2016 for β = 2).

    Raises:
        UserError: the extra `metrics` isn't installed.
        ValueError: there are no texts, or not one reference for each.
    """
    return _corpus_score(_library("sacrebleu").CHRF(), predicted, references, seed)


def _library(name: str) -> Any:
    """Import a module of the extra `metrics`.

    Raises:
        UserError: it isn't installed.
    """
    require_packages("ROUGE, BLEU and chrF need", "metrics", name)
    return import_module(name)


def _corpus_score(
    metric: "Metric", predicted: Sequence[str], references: Sequence[str], seed: int
) -> Score:
    """Return the score of the summed counts of examples, whose counts are resampled.

    In sacrebleu these counts are private, but its other functions count n-grams again for every
    draw, or read the seed from the environment and return no interval (`corpus_score` with
    `n_bootstrap`).
    """
    if len(predicted) != len(references):
        raise ValueError(f"{len(predicted)} texts don't match {len(references)} references")
    counts = np.array(metric._extract_corpus_statistics(predicted, [references]))
    interval = bootstrap(
        counts,
        lambda rows: float(metric._compute_score_from_stats(rows.sum(0).tolist()).score),
        seed=seed,
    )
    return Score(interval, str(metric.get_signature()))
