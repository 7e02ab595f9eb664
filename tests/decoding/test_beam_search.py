"""Beam search: exhaustive where it can be, greedy with one beam, each prompt by itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import inf, nan
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention.kernel_config import EluConfig
from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.attention.score_config import SlidingWindowConfig
from regard.decoding import Beam, generate_ids, search_ids
from regard.decoding.beam_search import EarlyStopping
from regard.errors import NonFiniteError, UserError
from regard.models.builders import LanguageModel
from regard.models.pattern import LayerConfig
from regard.positions.config import RotaryConfig
from tiny_models import BLOCK, VOCABULARY, tiny_model

NEW = 5
MECHANISMS: dict[str, dict[str, Any]] = {
    "softmax": {"positions": RotaryConfig(), "n_kv_heads": 2},
    "elu": {"attention": EluConfig()},
    "sliding window": {"attention": SlidingWindowConfig(size=3, block_size=2)},
    "layers of two kinds": {
        "pattern": (LayerConfig(attention=GatedDeltaNetConfig()), LayerConfig(window=3))
    },
}

EARLY_STOPPING: tuple[EarlyStopping, ...] = (True, False, "never")

checked = settings(deadline=None, derandomize=True, max_examples=10)
tokens = st.integers(0, VOCABULARY - 1)
prompt_lists = st.lists(
    st.lists(tokens, min_size=1, max_size=BLOCK - NEW + 1), min_size=1, max_size=4
)
ways = st.fixed_dictionaries(
    {
        "beams": st.integers(2, 6),
        "stop_ids": st.just(()) | st.tuples(tokens),
        "length_penalty": st.sampled_from([-1.0, 0.0, 0.6, 1.0, 2.0]),
        "early_stopping": st.sampled_from(EARLY_STOPPING),
    }
)


@torch.no_grad()
def log_probability(model: LanguageModel, prompt: list[int], new: list[int]) -> float:
    """Without a cache, without a batch."""
    logits = model(torch.tensor([[*prompt, *new[:-1]]]))[0, len(prompt) - 1 :]
    return float(logits.log_softmax(-1)[torch.arange(len(new)), new].sum())


def written(beam: Beam, stop_ids: Sequence[int]) -> list[int]:
    """All new tokens, the one that stopped included; there is one stop id at most."""
    return [*beam.ids, *stop_ids] if beam.stopped else beam.ids


def assert_same(actual: list[list[Beam]], expected: list[list[Beam]]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        scores = [beam.score for beam in theirs]
        # Where scores are nearly equal, rounding decides what comes first.
        assume(all(a - b > 1e-9 for a, b in pairwise(scores)))
        assert [(beam.ids, beam.stopped) for beam in ours] == [(b.ids, b.stopped) for b in theirs]
        assert [beam.score for beam in ours] == pytest.approx(scores, rel=0, abs=1e-10)


# What is found


@pytest.mark.parametrize(
    ("vocabulary", "new", "length_penalty", "early_stopping"),
    [
        *((3, 4, 1.0, early) for early in EARLY_STOPPING),
        *((4, 3, penalty, "never") for penalty in (0.0, -1.0)),
    ],
)
def test_as_many_beams_as_continuations_find_them_all(
    vocabulary: int, new: int, length_penalty: float, early_stopping: EarlyStopping
) -> None:
    """By the probability of each of them, with and without a token that stops."""
    model, prompt = tiny_model(vocabulary=vocabulary, seed=vocabulary), [1, 2, 0]
    for stop_ids in ((), (1,)):
        everything = {
            tuple(whole[: whole.index(1) + 1] if stop_ids and 1 in whole else whole)
            for whole in product(range(vocabulary), repeat=new)
        }
        scores = {
            ids: log_probability(model, prompt, list(ids)) / len(ids) ** length_penalty
            for ids in everything
        }
        ranked = sorted(everything, key=lambda ids: -scores[ids])
        (found,) = search_ids(
            model,
            [prompt],
            beams=len(everything),
            max_new_tokens=new,
            stop_ids=stop_ids,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            n_best=len(everything),
        )
        assert [tuple(written(beam, stop_ids)) for beam in found] == ranked
        expected = [scores[ids] for ids in ranked]
        assert [beam.score for beam in found] == pytest.approx(expected, rel=0, abs=1e-10)


@checked
@given(prompts=prompt_lists, stop_ids=st.just(()) | st.tuples(tokens))
def test_one_beam_is_greedy(prompts: list[list[int]], stop_ids: tuple[int, ...]) -> None:
    model = tiny_model()
    greedy = generate_ids(model, prompts, max_new_tokens=NEW, stop_ids=stop_ids)
    found = search_ids(
        model, prompts, beams=1, max_new_tokens=NEW, stop_ids=stop_ids, early_stopping=True
    )
    for (beam,), row in zip(found, greedy, strict=True):
        assert (beam.ids, beam.stopped) == (row.ids, row.stopped)
        # Greedy generation scores in float32.
        assert beam.log_probability == pytest.approx(sum(row.log_probabilities), rel=1e-5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@checked
@given(prompts=prompt_lists, way=ways)
def test_scores_are_those_of_the_model_without_a_cache(
    prompts: list[list[int]], way: dict[str, Any], mechanism: str
) -> None:
    """Nor a batch: states of any mechanism follow their beams."""
    model = tiny_model(**MECHANISMS[mechanism])
    found = search_ids(model, prompts, max_new_tokens=NEW, n_best=way["beams"], **way)
    for prompt, beams in zip(prompts, found, strict=True):
        assert len(beams) == way["beams"]
        assert len({(tuple(beam.ids), beam.stopped) for beam in beams}) == len(beams)
        assert [beam.score for beam in beams] == sorted((b.score for b in beams), reverse=True)
        for beam in beams:
            new = written(beam, way["stop_ids"])
            assert beam.stopped or len(new) == NEW
            assert not set(way["stop_ids"]) & set(beam.ids)
            expected = log_probability(model, prompt, new)
            assert beam.log_probability == pytest.approx(expected, rel=0, abs=1e-10)
            score = beam.log_probability / len(new) ** way["length_penalty"]
            assert beam.score == pytest.approx(score, rel=1e-12)


@checked
@given(prompts=prompt_lists, way=ways)
def test_prompts_are_each_searched_alone(prompts: list[list[int]], way: dict[str, Any]) -> None:
    model = tiny_model()
    way = {"max_new_tokens": NEW, "n_best": way["beams"], **way}
    together = search_ids(model, prompts, **way)
    assert_same(together, [search_ids(model, [prompt], **way)[0] for prompt in prompts])


@checked
@given(prompts=prompt_lists, way=ways)
def test_fewer_are_the_first_of_many(prompts: list[list[int]], way: dict[str, Any]) -> None:
    model, beams = tiny_model(), way["beams"]
    many = search_ids(model, prompts, max_new_tokens=NEW, n_best=beams, **way)
    for n_best in range(1, beams):
        few = search_ids(model, prompts, max_new_tokens=NEW, n_best=n_best, **way)
        # Exact: the same operations on the same shapes.
        assert few == [row[:n_best] for row in many]


def test_more_beams_than_continuations_give_what_there_is() -> None:
    (found,) = search_ids(
        tiny_model(vocabulary=3), [[1]], beams=9, max_new_tokens=2, stop_ids=(0,), n_best=9
    )
    longer = [[first, second] for first in (1, 2) for second in range(3)]
    assert sorted(written(beam, (0,)) for beam in found) == [[0], *longer]


def test_a_vocabulary_of_one_token_has_one_continuation() -> None:
    model = tiny_model(vocabulary=1)
    assert search_ids(model, [[0]], beams=2, max_new_tokens=3, n_best=2) == [
        [Beam([0, 0, 0], 0.0, 0.0)]
    ]
    stopping = search_ids(model, [[0]], beams=2, max_new_tokens=3, stop_ids=(0,), n_best=2)
    assert stopping == [[Beam([], 0.0, 0.0, stop_id=0)]]


# How it is found


@dataclass
class Table:
    """A model whose next token depends on the last one alone; it remembers how it was called."""

    log_probabilities: Tensor
    calls: list[int] = field(default_factory=list)
    """Rows of each call."""

    def init_state(self, batch: int, capacity: int) -> "Rows":
        return Rows(batch)

    def extend(
        self, ids: Tensor, states: "Rows", keep: Tensor | None = None
    ) -> tuple[Tensor, "Rows"]:
        assert len(ids) == states.n
        self.calls.append(len(ids))
        last = ids[:, -1] if keep is None else ids[torch.arange(len(ids)), keep.sum(1) - 1]
        return self.log_probabilities[last], states


@dataclass
class Rows:
    """A state that knows nothing but the number of its rows."""

    n: int

    def reorder(self, rows: Tensor) -> "Rows":
        assert rows.numel() == 0 or 0 <= int(rows.min()) <= int(rows.max()) < self.n
        return Rows(len(rows))


def chain() -> Table:
    """0 goes to 1, 2 or 3 (½, ⅜, ⅛); 1 to each equally; 2 and 3 to 3 nearly always."""
    shares = [[0, 1 / 2, 3 / 8, 1 / 8], [1 / 4] * 4, [0, 0.05, 0.05, 0.9], [0, 0.05, 0.05, 0.9]]
    return Table(torch.tensor(shares, dtype=torch.float64).log())


def test_two_beams_find_what_greed_overlooks() -> None:
    greedy = search_ids(chain(), [[0]], beams=1, max_new_tokens=2)
    wide = search_ids(chain(), [[0]], beams=2, max_new_tokens=2)
    assert greedy[0][0].ids[0] == 1
    assert wide[0][0].ids == [2, 3]
    assert greedy[0][0].score < wide[0][0].score


def test_a_prompt_is_read_once_for_all_its_beams() -> None:
    model = chain()
    search_ids(model, [[0], [1, 2], [3]], beams=4, max_new_tokens=3)
    assert model.calls == [3, 12, 12]


def lure() -> Table:
    """3 stops. After 0 it comes at once with ½; after 1, then after 2 and 0, with less but soon."""
    shares = [[0, 0.3, 0.2, 0.5], [0.04, 0.03, 0.03, 0.9], [0.9, 0.04, 0.04, 0.02], [1 / 4] * 4]
    return Table(torch.tensor(shares, dtype=torch.float64).log())


def test_the_search_ends_when_nothing_better_is_hoped_for() -> None:
    cases: list[tuple[EarlyStopping, float, int]] = [
        # The second step brings the second that ends: 3 with log ½ = -0.69, 1 3 with log 0.27 =
        # -1.31. The best that goes on is 2 0 with log 0.18 = -1.71.
        (True, 2.0, 2),
        (False, 0.0, 2),
        (False, 1.0, 2),
        ("never", 0.0, 2),
        ("never", -1.0, 2),
        # -1.71 / 2² is better than -0.69, and so it goes on.
        (False, 2.0, 6),
        # -1.71 / 6 is too; the best five, 2 0 2 0 1 with log 0.0097 = -4.63, are not.
        ("never", 1.0, 5),
    ]
    for early_stopping, length_penalty, calls in cases:
        model = lure()
        search_ids(
            model,
            [[0]],
            beams=2,
            max_new_tokens=6,
            stop_ids=(3,),
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        assert len(model.calls) == calls


def test_a_negative_penalty_hopes_for_no_greater_length() -> None:
    """3 and 1 3 end, with log 0.15 · 2 = -3.79 the worse; of what goes on, 1 0 has -1.56 · 2.

    At the greatest length it would have -1.56 · 6; after one more step it has -2.07 · 3.
    """
    shares = [[0, 0.6, 0.1, 0.3], [0.35, 0.21, 0.19, 0.25], [1 / 4] * 4, [1 / 4] * 4]
    model = Table(torch.tensor(shares, dtype=torch.float64).log())
    search_ids(model, [[0]], beams=2, max_new_tokens=6, stop_ids=(3,), length_penalty=-1.0)
    assert len(model.calls) == 3


# What is refused


@pytest.mark.parametrize(("bad", "beams"), [(nan, 1), (inf, 3)])
def test_nothing_is_found_in_bad_numbers(bad: float, beams: int) -> None:
    logits = torch.zeros(4, 4, dtype=torch.float64)
    logits[3, 1] = bad
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        search_ids(Table(logits), [[0], [3]], beams=beams, max_new_tokens=4)


def test_impossible_settings_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"beams": 0}, "beams must be ≥ 1, not 0"),
        ({"n_best": 0}, "can't return 0 of 2 beams; choose 1 to 2"),
        ({"n_best": 3}, "can't return 3 of 2 beams; choose 1 to 2"),
        ({"max_new_tokens": 0}, "new tokens must be ≥ 1, not 0"),
        ({"length_penalty": nan}, "length penalty must lie in .*, not nan"),
        ({"length_penalty": -inf}, "length penalty must lie in .*, not -inf"),
        ({"early_stopping": "soon"}, "early stopping is true, false or never, not 'soon'"),
        ({"early_stopping": 1}, "early stopping is true, false or never, not 1"),
    ]
    for wrong, message in cases:
        with pytest.raises(UserError, match=message):
            search_ids(chain(), [[0]], **{"beams": 2, "max_new_tokens": 2, **wrong})


def test_a_penalty_may_be_a_large_integer() -> None:
    """128^10 is an integer beyond int64."""
    found, expected = (
        search_ids(chain(), [[0]], beams=2, max_new_tokens=128, length_penalty=penalty)
        for penalty in (10, 10.0)
    )
    assert found == expected
