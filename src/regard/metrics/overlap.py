"""Overlap of predicted texts with references: ROUGE, BLEU and chrF."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unicodedata import category

import numpy as np

from regard.metrics.intervals import Interval, bootstrap

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

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
    """Letters and digits that stand together, in lower case.

    Chinese and Japanese, which put no spaces between words, are taken character by character.
    """
    return _WORD.findall(text.lower())


def rouge(
    predicted: Sequence[str], references: Sequence[str], *, seed: int = 0
) -> dict[str, Interval]:
    """ROUGE-1, ROUGE-2 and ROUGE-L: the mean F-measure, from 0 to 1 (Lin, 2004, §2 and §3).

    By rouge-score without stemming, but on our `words`, as its own know no letters but a to z. As
    there, an example without a pair of words to share has a ROUGE-2 of 0, though it is one word
    that is repeated, and one without words has 0 throughout.

    Raises:
        ValueError: there are no texts, or not one reference for each.
    """
    # Here, as it imports nltk, which takes a third of a second.
    from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

    scorer = RougeScorer(list(_ROUGE.values()), tokenizer=SimpleNamespace(tokenize=words))
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
    which it takes for one long word, are better measured by `chrf`.

    Raises:
        ValueError: there are no texts, or not one reference for each.
    """
    from sacrebleu import BLEU

    # Forced: that a corpus comes in words, like WikiText, calls for no warning.
    return _corpus_score(BLEU(effective_order=True, force=True), predicted, references, seed)


def chrf(predicted: Sequence[str], references: Sequence[str], *, seed: int = 0) -> Score:
    """chrF of a corpus: F₂ of n-grams of one to six characters (Popović, 2015; 2016 for β = 2).

    Raises:
        ValueError: there are no texts, or not one reference for each.
    """
    from sacrebleu import CHRF

    return _corpus_score(CHRF(), predicted, references, seed)


def _corpus_score(
    metric: "Metric", predicted: Sequence[str], references: Sequence[str], seed: int
) -> Score:
    """The score from the sums of each example's counts; examples are drawn by their counts.

    In sacrebleu these counts are private, but all else counts every n-gram anew for every draw, or
    takes its seed from the environment and gives no ends (`corpus_score` with `n_bootstrap`).
    """
    if len(predicted) != len(references):
        raise ValueError(f"{len(predicted)} texts can't be held against {len(references)}")
    counts = np.array(metric._extract_corpus_statistics(predicted, [references]))
    interval = bootstrap(
        counts,
        lambda rows: float(metric._compute_score_from_stats(rows.sum(0).tolist()).score),
        seed=seed,
    )
    return Score(interval, str(metric.get_signature()))
