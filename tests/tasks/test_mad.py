"""MAD's probes against their definitions, by plain loops."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from regard.data import IGNORE
from regard.tasks.mad import (
    CompressionConfig,
    FuzzyRecallConfig,
    InContextRecallConfig,
    MemorizationConfig,
    NoisyRecallConfig,
)
from regard.tasks.probes import ProbeConfig, draw_probe, draw_probe_test

UNLIKELY = 1e-3
"""A fixed seed decides each draw: a test that passes once passes always."""
ROWS = 4
seeds = st.integers(0, 2**32 - 1)
lengths = st.integers(2, 12).map(lambda pairs: 2 * pairs)


def training_rows(config: ProbeConfig, seed: int, rows: int = ROWS) -> list[list[int]]:
    """Rows with their last ids; labels are the next ids of all positions."""
    ids, labels = draw_probe(config, seed, rows)
    assert (ids[:, 1:] == labels[:, :-1]).all()
    return [[*row, last] for row, last in zip(ids.tolist(), labels[:, -1].tolist(), strict=True)]


def scored_rows(config: ProbeConfig, seed: int) -> list[tuple[list[int], list[int]]]:
    """Rows with their last ids, and of each id whether it is asked for (its label, or IGNORE)."""
    ids, labels = draw_probe_test(config, seed, ROWS)
    rows = zip(ids.tolist(), labels.tolist(), strict=True)
    return [([*row, asked[-1]], [IGNORE, *asked]) for row, asked in rows]


def recalled(row: list[int], half: int, plain: int) -> list[int]:
    """The labels of a row of pairs: values of keys that came before; checks the row on the way."""
    value_of: dict[int, int] = {}
    labels = []
    for key, value in zip(row[::2], row[1::2], strict=True):
        if key >= plain:
            assert value >= plain
            labels += [IGNORE, IGNORE]
            continue
        assert 0 <= key < half <= value < plain
        labels += [IGNORE, value if key in value_of else IGNORE]
        assert value_of.setdefault(key, value) == value
    return labels


def check_recall(config: InContextRecallConfig | NoisyRecallConfig, seed: int, plain: int) -> None:
    """Values of known keys are asked for; ids below `plain` are keys and values."""
    for row in training_rows(config, seed):
        assert len(row) == config.length
        assert max(row) < config.vocabulary
        recalled(row, plain // 2, plain)
    for row, labels in scored_rows(config, seed):
        assert labels == recalled(row, plain // 2, plain)
        assert labels[-1] != IGNORE


@given(st.integers(4, 20), lengths, seeds)
def test_in_context_recall_asks_for_values_of_known_keys(
    vocabulary: int, length: int, seed: int
) -> None:
    config = InContextRecallConfig(vocabulary=vocabulary, length=length)
    check_recall(config, seed, vocabulary)


@given(st.integers(4, 12), st.integers(1, 6), lengths, st.floats(0, 0.99), seeds)
def test_noisy_recall_has_noise_between_but_not_instead(
    plain: int, noise_vocabulary: int, length: int, noise: float, seed: int
) -> None:
    vocabulary = plain + noise_vocabulary
    config = NoisyRecallConfig(
        vocabulary=vocabulary, length=length, noise_vocabulary=noise_vocabulary, noise=noise
    )
    check_recall(config, seed, plain)


def test_keys_values_and_noise_have_the_stated_distributions() -> None:
    config = NoisyRecallConfig(vocabulary=12, noise_vocabulary=4, length=22, noise=0.3)
    rows = training_rows(config, 0, 4000)
    first = [row[:2] for row in rows]
    noise = [pair for pair in first if pair[0] >= 8]
    p = 0.3 * 9 / 10  # one pair of ten is spared
    assert binomtest(len(noise), len(rows), p).pvalue > UNLIKELY
    pairs = Counter(tuple(pair) for pair in first if pair[0] < 8)
    assert len(pairs) == 4 * 4
    noisy = Counter(map(tuple, noise))
    assert len(noisy) == 4 * 4
    for counts in (pairs, noisy):
        assert chisquare(list(counts.values())).pvalue > UNLIKELY


@st.composite
def fuzzy_configs(draw: st.DrawFn) -> FuzzyRecallConfig:
    keys, values = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return FuzzyRecallConfig(
        key_size=keys,
        value_size=values,
        vocabulary=draw(st.integers(max(5, 2 * max(keys, values) + 1), 16)),
        length=2 * (keys + values) - 1 + draw(st.integers(0, 20)),
    )


def fuzzy_pairs(row: list[int], half: int, filler: int) -> list[tuple[list[int], list[int]]]:
    """The pairs of a row, read from left to right; fillers are before them."""
    pairs: list[tuple[list[int], list[int]]] = []
    n_fillers = next(i for i, token in enumerate(row) if token != filler)
    for token in row[n_fillers:]:
        if token < half and (not pairs or pairs[-1][1]):
            pairs.append(([], []))
        pairs[-1][token >= half].append(token)
    assert all(token != filler for key, value in pairs for token in (*key, *value))
    return pairs


@given(fuzzy_configs(), seeds)
def test_fuzzy_recall_asks_for_values_of_known_keys(config: FuzzyRecallConfig, seed: int) -> None:
    filler = config.vocabulary - 1
    longest = config.key_size + config.value_size
    for row, labels in scored_rows(config, seed):
        assert len(row) == config.length + 1
        pairs = fuzzy_pairs(row, filler // 2, filler)
        value_of: dict[tuple[int, ...], list[int]] = {}
        expected: list[int] = []
        for key, value in pairs:
            assert len(key) == len(set(key)) == config.key_size
            assert 1 <= len(value) == len(set(value)) <= config.value_size
            known = tuple(key) in value_of
            expected += [IGNORE] * len(key) + (value if known else [IGNORE] * len(value))
            assert value_of.setdefault(tuple(key), value) == value
        assert labels == [IGNORE] * (len(row) - len(expected)) + expected
        assert labels[-1] != IGNORE
        # No place for the longest pair is left, but for the last pair, which may be shorter.
        assert len(row) - len(expected) < longest + longest - len([*pairs[-1][0], *pairs[-1][1]])
    for row in training_rows(config, seed):
        for key, value in fuzzy_pairs(row, filler // 2, filler):
            assert 1 <= len(key) == len(set(key)) <= config.key_size
            assert 1 <= len(value) == len(set(value)) <= config.value_size


def test_sizes_of_fuzzy_keys_and_values_are_uniform() -> None:
    config = FuzzyRecallConfig(length=40)
    pairs = [fuzzy_pairs(row, 7, 15)[0] for row in training_rows(config, 0, 3000)]
    sizes = Counter((len(key), len(value)) for key, value in pairs)
    assert len(sizes) == 9
    assert chisquare(list(sizes.values())).pvalue > UNLIKELY


@given(st.integers(3, 20), lengths, seeds, seeds)
def test_memorization_asks_for_values_that_are_the_same_in_all_rows(
    vocabulary: int, length: int, mapping: int, seed: int
) -> None:
    config = MemorizationConfig(vocabulary=vocabulary, length=length, mapping=mapping)
    ask = vocabulary - 1
    value_of: dict[int, int] = {}
    for ids, labels in (draw_probe(config, seed, ROWS), draw_probe_test(config, seed + 1, ROWS)):
        assert ids.shape == (ROWS, length)
        for row, targets in zip(ids.tolist(), labels.tolist(), strict=True):
            assert set(row[1::2]) == {ask}
            assert set(targets[::2]) == {IGNORE}
            for key, value in zip(row[::2], targets[1::2], strict=True):
                assert 0 <= key < ask // 2 <= value < ask
                assert value_of.setdefault(key, value) == value
    assert len(set(value_of.values())) == len(value_of)


@given(st.integers(2, 20), st.integers(2, 12), seeds)
def test_compression_asks_for_all_ids_of_a_row(vocabulary: int, length: int, seed: int) -> None:
    config = CompressionConfig(vocabulary=vocabulary, length=length)
    ids, labels = draw_probe(config, seed, ROWS)
    assert ids.shape == (ROWS, length)
    assert (labels == ids).all()
    assert (ids[:, -1] == vocabulary - 1).all()
    assert ids[:, :-1].min() >= 0
    assert ids[:, :-1].max() < vocabulary - 1
