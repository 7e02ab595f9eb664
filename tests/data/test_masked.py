"""Masked tokens: what is masked, how often, and what is to be predicted."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import assert_rows
from scipy.stats import chisquare

from regard.data import IGNORE
from regard.data.batch import RowFormat
from regard.data.masked import MaskedTokens, mask_all, mask_tokens

PAD, MASK = 0, 1
tokens = st.lists(st.integers(MASK + 1, 50), max_size=60)
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)
UNLIKELY = 1e-3
"""A fixed seed decides each draw: a test that passes once passes always."""


@given(tokens, generators, st.floats(0, 1))
def test_masking_labels_the_chosen_and_leaves_the_rest(
    document: list[int], draw: np.random.Generator, share: float
) -> None:
    before = list(document)
    ids, labels = mask_tokens(document, draw, mask=MASK, regular_ids=range(2, 51), share=share)
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
        ids, labels = mask_tokens(document, draw, mask=MASK, regular_ids=range(2, vocabulary))
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
    ids, _ = mask_tokens([only] * 40_000, draw, mask=MASK, regular_ids=[only], share=1.0)
    assert set(ids) == {MASK, only}
    assert ids.count(MASK) / len(ids) == pytest.approx(0.8, abs=0.008)


@given(tokens, generators, st.floats(0, 1))
def test_hiding_leaves_nothing_of_the_chosen_and_all_of_the_rest(
    document: list[int], draw: np.random.Generator, share: float
) -> None:
    before = list(document)
    ids, labels = mask_all(document, draw, mask=MASK, share=share)
    assert document == before
    chosen = [i for i, label in enumerate(labels) if label != IGNORE]
    assert len(chosen) == min(max(1, round(share * len(document))), len(document))
    assert [i for i, token in enumerate(ids) if token == MASK] == chosen
    restored = [now if y == IGNORE else y for now, y in zip(ids, labels, strict=True)]
    assert restored == document


def test_every_place_is_hidden_equally_often() -> None:
    draw, document = np.random.default_rng(0), list(range(MASK + 1, 42))
    rows = [mask_all(document, draw, mask=MASK, share=0.25)[0] for _ in range(2000)]
    assert chisquare((np.array(rows) == MASK).sum(0)).pvalue > UNLIKELY


texts = st.lists(
    st.lists(st.integers(MASK + 1, 50), min_size=1, max_size=10), min_size=1, max_size=5
)


@given(texts, st.sampled_from([[], [MASK]]), st.integers(0, 1000), st.booleans())
def test_a_masked_text_keeps_ids_labels_and_token_types_side_by_side(
    rows: list[list[int]], prefix: list[int], seed: int, autoencoding: bool
) -> None:
    format, types = RowFormat(12, PAD, prefix), [[1] * len(row) for row in rows]
    if autoencoding:
        corrupt = partial(mask_all, mask=MASK, share=0.5)
    else:
        corrupt = partial(mask_tokens, mask=MASK, share=0.5, regular_ids=range(2, 51))
    dataset = MaskedTokens(rows, format, corrupt, None if autoencoding else types)
    rng, again = np.random.default_rng(seed), np.random.default_rng(seed)
    batch = dataset.collate([dataset.example(i, rng) for i in range(len(dataset))])
    made = [corrupt(row, again) for row in rows]
    n = len(prefix)
    assert_rows(batch.input_ids, [[*prefix, *ids] for ids, _ in made], 12)
    assert_rows(batch.labels, [[*[IGNORE] * n, *labels] for _, labels in made], 12, IGNORE)
    assert batch.inputs["input_ids"].lengths.tolist() == [n + len(row) for row in rows]
    assert [dataset.length(i) for i in range(len(dataset))] == list(map(len, rows))
    if not autoencoding:
        expected = [[*[0] * n, *of] for of in types]
        assert_rows(batch.inputs["token_type_ids"].ids, expected, 12)
