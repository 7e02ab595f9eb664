"""How tokens are chosen: the filters by their definitions, the draws by their distribution."""

from fractions import Fraction
from math import exp, inf, nan
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from regard.decoding import Sampling, generate_ids
from regard.decoding.sampling import draw
from regard.errors import NonFiniteError, UserError

EPS = torch.finfo(torch.float64).eps
ALMOST_ONE = 1 - EPS / 2
"""The greatest number that `torch.rand` can give."""

checked = settings(deadline=None, derandomize=True, max_examples=150)
# Quarters, so that there are ties; and tokens that can't be.
logits = st.lists(st.integers(-20, 20).map(lambda n: n / 4) | st.just(-inf), min_size=1, max_size=8)
possible = logits.filter(lambda row: max(row) > -inf)
temperatures = st.sampled_from([0.05, 0.5, 1.0, 1.7, 10.0])


# By definition, in plain Python


def softened(row: list[float], temperature: float) -> list[float]:
    powers = [exp((logit - max(row)) / temperature) for logit in row]
    return [power / sum(powers) for power in powers]


def ranked(probabilities: list[float]) -> list[int]:
    """Tokens by falling probability; of equal ones, the lower id first."""
    return sorted(range(len(probabilities)), key=lambda token: (-probabilities[token], token))


def only(probabilities: list[float], kept: list[int]) -> list[float]:
    mass = sum(probabilities[token] for token in kept)
    return [p / mass if token in kept else 0.0 for token, p in enumerate(probabilities)]


def nucleus(probabilities: list[float], p: float) -> list[int]:
    """The fewest most probable tokens whose mass reaches p."""
    order = ranked(probabilities)
    for size in range(1, len(order) + 1):
        mass = float(sum(Fraction(probabilities[token]) for token in order[:size]))
        # Whether rounding reaches p exactly isn't the definition's business.
        assume(abs(mass - p) > 64 * EPS)
        if mass >= p:
            return order[:size]
    return order


def assert_close(actual: Tensor, expected: list[float]) -> None:
    # Exponents down to -200 are rounded, and then a handful of numbers up to 1.
    assert torch.allclose(
        actual, torch.tensor([expected], dtype=torch.float64), rtol=512 * EPS, atol=0
    )
    assert [bool(p) for p in actual[0]] == [p > 0 for p in expected]


def probabilities_of(row: list[float], **settings: Any) -> Tensor:
    return Sampling(**settings).probabilities(torch.tensor([row], dtype=torch.float64))


@checked
@given(
    row=possible,
    temperature=temperatures,
    k=st.none() | st.integers(1, 10),
    p=st.none() | st.floats(0.01, 0.99),
)
def test_the_logits_are_divided_and_then_filtered_by_top_k_and_then_by_top_p(
    row: list[float], temperature: float, k: int | None, p: float | None
) -> None:
    expected = softened(row, temperature)
    if k is not None:
        expected = only(expected, ranked(expected)[:k])
    if p is not None:
        expected = only(expected, nucleus(expected, p))
    assert_close(probabilities_of(row, temperature=temperature, top_k=k, top_p=p), expected)


def test_a_mass_of_exactly_p_is_enough() -> None:
    for p, kept in ((0.25, 1), (0.5, 2), (0.500001, 3), (1.0, 4)):
        equal = probabilities_of([1.0] * 4, temperature=1.0, top_p=p)
        assert equal.tolist() == [[1 / kept] * kept + [0.0] * (4 - kept)], p


def test_of_equal_tokens_the_lowest_ids_are_kept() -> None:
    row = [0.0, 1.0, 1.0, 0.0, 1.0]
    assert probabilities_of(row, temperature=1.0, top_k=2).tolist() == [[0, 0.5, 0.5, 0, 0]]
    assert probabilities_of(row, temperature=1.0, top_p=0.3).tolist() == [[0, 0.5, 0.5, 0, 0]]


@checked
@given(row=possible, k=st.none() | st.integers(1, 9), p=st.none() | st.floats(0.01, 1.0))
def test_temperature_zero_is_the_best_token_whatever_the_filters(
    row: list[float], k: int | None, p: float | None
) -> None:
    probabilities = probabilities_of(row, temperature=0.0, top_k=k, top_p=p)
    best = row.index(max(row))
    assert probabilities.tolist() == [[float(token == best) for token in range(len(row))]]
    for uniform in (0.0, 0.5, ALMOST_ONE):
        drawn = torch.tensor([uniform], dtype=torch.float64)
        assert draw(probabilities, drawn).item() == best
        chosen = Sampling(top_k=k, top_p=p).choose(torch.tensor([row], dtype=torch.float64), drawn)
        assert chosen.item() == best


@pytest.mark.parametrize("stop_ids", [(), (2,)])
@pytest.mark.parametrize(("temperature", "bad"), [(0.0, inf), (1.0, nan)])
def test_nothing_is_generated_from_bad_numbers(
    temperature: float, bad: float, stop_ids: tuple[int, ...]
) -> None:
    class Damaged:
        """A model that scores the second token of its second row with a bad number."""

        def init_state(self, batch: int, capacity: int) -> int:
            return 0

        def extend(self, ids: Tensor, steps: int, mask: Tensor | None = None) -> tuple[Tensor, int]:
            return torch.tensor([[0.0, 1.0], [bad if steps == 1 else 0.0, 1.0]]), steps + 1

    sampling = Sampling(temperature=temperature)
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        generate_ids(Damaged(), [[0], [0]], max_new_tokens=4, stop_ids=stop_ids, sampling=sampling)


def test_a_tiny_temperature_is_nearly_greedy_and_finite() -> None:
    for temperature in (1e-8, 1e-300, 5e-324):
        probabilities = probabilities_of([-1e30, 2.0, 1e30, 1.0], temperature=temperature)
        assert probabilities.tolist() == [[0.0, 0.0, 1.0, 0.0]], temperature


# Draws

shares = st.lists(
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-17, 0.1, 0.25, 1 / 3, 0.5, 1.0]),
    min_size=1,
    max_size=8,
).filter(any)
uniforms = st.sampled_from([0.0, 5e-324, 1e-17, 0.5, ALMOST_ONE]) | st.floats(0, ALMOST_ONE)


@checked
@given(row=shares, uniform=uniforms)
def test_a_token_of_probability_zero_is_never_drawn(row: list[float], uniform: float) -> None:
    """Not by the smallest nor by the greatest random number, even if the sum isn't quite 1."""
    row = [share / sum(row) for share in row]
    assume(any(row))
    probabilities, uniform_ = (torch.tensor([x], dtype=torch.float64) for x in (row, uniform))
    token = int(draw(probabilities, uniform_))
    assert 0 <= token < len(row)
    assert row[token] > 0


def test_the_greatest_random_number_finds_a_token_though_the_sum_is_a_little_less_than_one() -> (
    None
):
    probabilities = torch.tensor([[0.1] * 10 + [0.0]], dtype=torch.float64)
    assert float(probabilities.cumsum(-1)[0, -1]) <= ALMOST_ONE
    assert int(draw(probabilities, torch.tensor([ALMOST_ONE], dtype=torch.float64))) == 9


@checked
@given(weights=st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any), data=st.data())
def test_draws_invert_the_distribution_function(weights: list[int], data: st.DataObject) -> None:
    """The token is the first whose cumulative share exceeds the random number."""
    total = sum(weights)
    urn = [token for token, weight in enumerate(weights) for _ in range(weight)]
    # The middle of each ticket's share, away from rounding.
    ticket = data.draw(st.integers(0, total - 1))
    probabilities = torch.tensor([weights], dtype=torch.float64) / total
    uniform = torch.tensor([(ticket + 0.5) / total], dtype=torch.float64)
    assert int(draw(probabilities, uniform)) == urn[ticket]


# Random numbers


@pytest.mark.parametrize("axis", ["steps", "rows", "seeds"])
def test_random_numbers_are_uniform_and_successive_ones_unrelated(axis: str) -> None:
    n = 4000
    numbers = {
        "steps": lambda: Sampling(seed=3).uniforms(1, n)[0],
        "rows": lambda: Sampling(seed=3).uniforms(n, 1)[:, 0],
        "seeds": lambda: torch.cat([Sampling(seed=s).uniforms(1, 1)[0] for s in range(n)]),
    }[axis]()
    assert numbers.dtype == torch.float64
    counts = torch.histc(numbers, bins=20, min=0, max=1)
    assert chisquare(counts.numpy()).pvalue > 1e-4
    correlation = torch.corrcoef(torch.stack([numbers[:-1], numbers[1:]]))[0, 1]
    # Four standard errors.
    assert abs(float(correlation)) < 4 / n**0.5


def test_random_numbers_depend_on_seed_and_row_alone() -> None:
    one, many = Sampling(seed=5).uniforms(1, 3), Sampling(seed=5).uniforms(4, 7)
    assert torch.equal(many[:1, :3], one)
    torch.manual_seed(0)
    again = Sampling(seed=5).uniforms(4, 7)
    assert torch.equal(again, many)


# What is refused


def test_random_numbers_depend_on_keys_if_there_are_any() -> None:
    plain, keyed = Sampling(seed=3).uniforms(9, 2), Sampling(seed=3, keys=(8, 1)).uniforms(2, 2)
    assert torch.equal(keyed, plain[[8, 1]])
    with pytest.raises(UserError, match="there are 2 for 3 rows"):
        Sampling(keys=(8, 1)).uniforms(3, 2)


def test_impossible_settings_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"temperature": -0.1}, "temperature must be ≥ 0, not -0.1"),
        ({"temperature": nan}, "temperature must be ≥ 0, not nan"),
        ({"top_k": 0}, "top-k must be ≥ 1, not 0"),
        ({"top_p": 0.0}, r"top-p must lie in \(0, 1\], not 0.0"),
        ({"top_p": 1.1}, r"top-p must lie in \(0, 1\], not 1.1"),
        ({"top_p": nan}, r"top-p must lie in \(0, 1\], not nan"),
        ({"seed": -1}, "seed"),
    ]
    for wrong, message in cases:
        with pytest.raises(UserError, match=message):
            Sampling(**wrong)
