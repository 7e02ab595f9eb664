"""What each objective asks of the model, and how often."""

from itertools import groupby, pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from regard.text.config import ObjectiveConfig
from regard.text.objectives import (
    IGNORE,
    EncodedExample,
    begin,
    hidden_tokens,
    masked_tokens,
    next_token,
    pieces,
    question_answer,
    span_corruption,
)
from regard.text.vocabulary import MASK, PAD

tokens = st.lists(st.integers(MASK + 1, 50), max_size=60)
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)
UNLIKELY = 1e-3
"""A fixed seed decides each draw: a test that passes once passes always."""


def take_apart(example: EncodedExample) -> tuple[list[int], list[int], list[int]]:
    """prefix, suffix and span of a corrupted document."""
    parts: list[list[int]] = [[]]
    for token in example.ids:
        if token == MASK:
            parts.append([])
        else:
            parts[-1].append(token)
    prefix, suffix, span = parts
    return prefix, suffix, span


def corrupt_often(length: int, block: int, times: int) -> list[tuple[int, int, int]]:
    """Lengths of prefix, suffix and span in many corruptions of one document."""
    draw = np.random.default_rng(0)
    document = list(range(MASK + 1, MASK + 1 + length))
    parts = (take_apart(span_corruption(document, block, draw)) for _ in range(times))
    return [(len(prefix), len(suffix), len(span)) for prefix, suffix, span in parts]


@given(tokens, st.integers(8, 64), generators)
def test_corrupted_parts_make_up_the_beginning_of_the_document(
    document: list[int], block: int, draw: np.random.Generator
) -> None:
    example = span_corruption(document, block, draw)
    prefix, suffix, span = take_apart(example)
    whole = prefix + span + suffix
    assert whole == document[: len(whole)]
    assert len(span) >= min(1, len(document))
    assert min(4, len(document)) <= len(whole) <= block * 7 // 8
    assert len(example.ids) <= block + 1
    assert all(example.targets)
    assert len(example.targets) == len(example.ids)


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_documents_shorter_than_any_truncation_are_kept_whole(length: int) -> None:
    for prefix, suffix, span in corrupt_often(length, 128, 50):
        assert prefix + suffix + span == length
        assert span == min(length, 1)


@pytest.mark.parametrize("block", [8, 64, 128])
def test_truncation_is_uniform_from_4_to_seven_eighths_of_the_block(block: int) -> None:
    lengths = [sum(parts) for parts in corrupt_often(200, block, 20_000)]
    longest = block * 7 // 8
    assert (min(lengths), max(lengths)) == (4, longest)
    counts = np.bincount(lengths, minlength=longest + 1)[4:]
    assert chisquare(counts).pvalue > UNLIKELY


def test_a_span_is_a_quarter_of_the_truncated_text_on_average() -> None:
    drawn = corrupt_often(200, 128, 20_000)
    quarters = sum(sum(parts) // 4 for parts in drawn)
    assert sum(span for _, _, span in drawn) / quarters == pytest.approx(1, abs=0.01)


def test_span_lengths_are_uniform_around_their_mean() -> None:
    whole = [parts for parts in corrupt_often(16, 128, 20_000) if sum(parts) == 16]
    counts = np.bincount([span for _, _, span in whole])
    assert counts[0] == 0
    assert len(counts) == 8  # 1..7, whose mean is 4
    assert chisquare(counts[1:]).pvalue > UNLIKELY


def test_the_place_of_a_span_is_uniform() -> None:
    whole = [parts for parts in corrupt_often(16, 128, 20_000) if sum(parts) == 16]
    starts = [prefix for prefix, _, span in whole if span == 5]
    counts = np.bincount(starts, minlength=12)
    assert len(counts) == 12
    assert chisquare(counts).pvalue > UNLIKELY


@given(tokens, st.integers(1, 64))
def test_next_token_predicts_all_and_then_the_end(document: list[int], block: int) -> None:
    example = next_token(document, block)
    assert list(example.ids) == [*document, MASK][: block + 1]
    assert list(example.targets) == [True] * len(example.ids)


@given(st.lists(st.integers(), min_size=2, max_size=60), st.integers(1, 20))
def test_pieces_predict_every_token_but_the_first_once(document: list[int], block: int) -> None:
    cut = pieces(document, block)
    assert [token for piece in cut for token in piece[1:]] == document[1:]
    assert cut[0][0] == document[0]
    for before, after in pairwise(cut):
        assert after[0] == before[-1]
        assert len(before) == block + 1
    assert 2 <= len(cut[-1]) <= block + 1


@pytest.mark.parametrize("document", [[], [5]])
def test_a_document_too_short_to_cut_is_one_piece(document: list[int]) -> None:
    assert pieces(document, 4) == [document]


@given(tokens, tokens)
def test_what_begins_a_text_is_not_predicted(prefix: list[int], document: list[int]) -> None:
    example = next_token(document, 8)
    begun = begin(prefix, example)
    assert list(begun.ids) == [*prefix, *example.ids]
    assert list(begun.targets) == [False] * len(prefix) + list(example.targets)


@given(tokens, tokens)
def test_a_question_carries_no_loss_and_its_answer_does(
    question: list[int], answer: list[int]
) -> None:
    example = question_answer(question, answer)
    assert list(example.ids) == [*question, MASK, *answer, MASK]
    predicted = [i for i, target in zip(example.ids, example.targets, strict=True) if target]
    assert predicted == [MASK, *answer, MASK]
    assert [target for target, _ in groupby(example.targets)] == [False] * bool(question) + [True]


@given(tokens, generators, st.floats(0, 1))
def test_masking_labels_the_chosen_and_leaves_the_rest(
    document: list[int], draw: np.random.Generator, share: float
) -> None:
    before = list(document)
    ids, labels = masked_tokens(document, 51, draw, share)
    assert document == before
    assert len(ids) == len(labels) == len(document)
    chosen = [i for i, label in enumerate(labels) if label != IGNORE]
    assert len(chosen) == min(max(1, round(share * len(document))), len(document))
    for i, (now, label, was) in enumerate(zip(ids, labels, document, strict=True)):
        assert label == (was if i in chosen else IGNORE)
        assert now == was or i in chosen
        assert now != PAD


def test_of_the_chosen_80_percent_are_masked_10_random_10_kept() -> None:
    draw, vocabulary, fates = np.random.default_rng(0), 1000, [0, 0, 0]
    document = list(range(MASK + 1, 501))
    places, randoms = np.zeros(len(document), int), set[int]()
    for _ in range(800):
        ids, labels = masked_tokens(document, vocabulary, draw)
        places += np.array(labels) != IGNORE
        for now, label in zip(ids, labels, strict=True):
            if label != IGNORE:
                fates[0 if now == MASK else 1 if now != label else 2] += 1
                randoms |= {now} if now not in (MASK, label) else set()
    total = sum(fates)
    assert total == 800 * round(0.15 * len(document))
    # A random token is the true one once in 998 times; 4 standard deviations of 60 000 draws.
    assert [n / total for n in fates] == pytest.approx([0.8, 0.1, 0.1], abs=0.0065)
    assert min(randoms) > MASK
    assert max(randoms) == vocabulary - 1
    assert chisquare(places).pvalue > UNLIKELY


def test_a_random_token_is_never_a_special_one() -> None:
    """With one ordinary token, a random one is that token again."""
    draw, only = np.random.default_rng(0), MASK + 1
    ids, _ = masked_tokens([only] * 40_000, only + 1, draw, share=1.0)
    assert set(ids) == {MASK, only}
    assert ids.count(MASK) / len(ids) == pytest.approx(0.8, abs=0.008)


@given(tokens, generators, st.floats(0, 1))
def test_hiding_leaves_nothing_of_the_chosen_and_all_of_the_rest(
    document: list[int], draw: np.random.Generator, share: float
) -> None:
    before = list(document)
    ids, labels = hidden_tokens(document, draw, share)
    assert document == before
    chosen = [i for i, label in enumerate(labels) if label != IGNORE]
    assert len(chosen) == min(max(1, round(share * len(document))), len(document))
    assert [i for i, token in enumerate(ids) if token == MASK] == chosen
    restored = [now if y == IGNORE else y for now, y in zip(ids, labels, strict=True)]
    assert restored == document


def test_every_place_is_hidden_equally_often() -> None:
    draw, document = np.random.default_rng(0), list(range(MASK + 1, 42))
    rows = [hidden_tokens(document, draw, 0.25)[0] for _ in range(2000)]
    assert chisquare((np.array(rows) == MASK).sum(0)).pvalue > UNLIKELY


shares = st.floats(0, 1)


@given(shares, shares, shares, shares, shares, shares)
def test_shares_are_of_one_side_or_of_both(
    next_token: float, span: float, clozes: float, questions: float, masked: float, hidden: float
) -> None:
    from_the_left, from_both = next_token + span + clozes + questions, masked + hidden
    assume(from_the_left + from_both)
    objective = ObjectiveConfig(
        next_token=next_token,
        span_corruption=span,
        clozes=clozes,
        questions=questions,
        masked_tokens=masked,
        masked_autoencoding=hidden,
    )
    assert objective.from_the_left == pytest.approx(from_the_left)
    assert objective.from_both_sides == pytest.approx(from_both)
    assert objective.total == pytest.approx(from_the_left + from_both)


def test_an_objective_without_any_share_is_refused() -> None:
    ObjectiveConfig(next_token=0.0, masked_autoencoding=0.1)
    with pytest.raises(ValueError, match="all shares are 0"):
        ObjectiveConfig(next_token=0.0)


@pytest.mark.parametrize("masking", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_of_tokens_that_cannot_be_masked_is_refused(masking: float) -> None:
    with pytest.raises(msgspec.ValidationError, match="masking"):
        msgspec.convert({"masking": masking}, ObjectiveConfig)
