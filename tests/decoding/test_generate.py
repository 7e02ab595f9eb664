"""Generation: a batch is its rows one by one, a cache changes nothing, and it stops."""

from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from math import e, log
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.decoding import Sampling, generate_ids, stream
from regard.errors import UserError
from regard.positions.config import NoPositionsConfig, RotaryConfig
from tiny_models import BLOCK, VOCABULARY, greedily, tiny_model

VARIANTS: dict[str, dict[str, Any]] = {
    "learned": {},
    "rotary, shared keys": {"positions": RotaryConfig(), "n_kv_heads": 2},
    "no positions, tied": {"positions": NoPositionsConfig(), "tie_head": True},
}

NEW = 5

checked = settings(deadline=None, derandomize=True, max_examples=20)
tokens = st.integers(0, VOCABULARY - 1)
prompt_lists = st.lists(
    st.lists(tokens, min_size=1, max_size=BLOCK - NEW + 1), min_size=1, max_size=4
)


@pytest.mark.parametrize("variant", VARIANTS)
@checked
@given(prompts=prompt_lists)
def test_a_greedy_batch_is_each_prompt_alone_without_a_cache(
    prompts: list[list[int]], variant: str
) -> None:
    model = tiny_model(**VARIANTS[variant])
    generated = generate_ids(model, prompts, max_new_tokens=NEW)
    assert [new.ids for new in generated] == [greedily(model, row, NEW) for row in prompts]
    assert not any(new.stopped for new in generated)


@checked
@given(
    prompt=st.lists(tokens, min_size=1, max_size=8),
    row=st.integers(0, 2),
    neighbors=st.lists(
        st.lists(st.lists(tokens, min_size=1, max_size=12), min_size=3, max_size=3),
        min_size=2,
        max_size=2,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_sample_depends_on_its_own_seed_row_and_prompt_alone(
    prompt: list[int], row: int, neighbors: list[list[list[int]]], seed: int
) -> None:
    model = tiny_model()
    sampling = Sampling(temperature=1.5, top_k=9, top_p=0.95, seed=seed)
    samples = []
    for others in neighbors:
        prompts = [*others[:row], prompt, *others[row:]]
        new = generate_ids(model, prompts, max_new_tokens=NEW, sampling=sampling)
        samples.append(new[row].ids)
    assert samples[0] == samples[1]


def test_rows_and_seeds_give_samples_of_their_own() -> None:
    model = tiny_model()
    samples = [
        tuple(new.ids)
        for seed in range(5)
        for new in generate_ids(
            model, [[1, 2]] * 8, max_new_tokens=12, sampling=Sampling(temperature=2.0, seed=seed)
        )
    ]
    assert len(set(samples)) == len(samples)


@checked
@given(prompts=prompt_lists, seed=st.integers(0, 99), stop_ids=st.just(()) | st.tuples(tokens))
def test_log_probabilities_are_those_of_the_model_without_a_cache(
    prompts: list[list[int]], seed: int, stop_ids: tuple[int, ...]
) -> None:
    """Of the model itself, before temperature and filters."""
    model = tiny_model()
    sampling = Sampling(temperature=0.8, top_k=6, seed=seed)
    generated = generate_ids(
        model, prompts, max_new_tokens=NEW, stop_ids=tuple(stop_ids), sampling=sampling
    )
    for prompt, new in zip(prompts, generated, strict=True):
        chosen = [*new.ids, *stop_ids] if new.stopped else new.ids
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *chosen[:-1]]]))[0, len(prompt) - 1 :]
        expected = logits.log_softmax(-1)[torch.arange(len(chosen)), chosen].tolist()
        # Logits below 10 are rounded to float32, and so is their logarithmic sum.
        bound = 32 * torch.finfo(torch.float32).eps
        assert len(new.log_probabilities) == len(expected)
        assert new.log_probabilities == pytest.approx(expected, rel=0, abs=bound)


# Stopping


@checked
@given(
    prompts=prompt_lists, stop_ids=st.sets(tokens, min_size=1, max_size=3), seed=st.integers(0, 99)
)
def test_a_row_ends_before_its_first_stop_token(
    prompts: list[list[int]], stop_ids: set[int], seed: int
) -> None:
    """What a row gives is what it gives without stopping, cut; the others go on."""
    model = tiny_model()
    sampling = Sampling(temperature=1.5, seed=seed)
    endless = generate_ids(model, prompts, max_new_tokens=NEW, sampling=sampling)
    stopping = generate_ids(
        model, prompts, max_new_tokens=NEW, stop_ids=tuple(stop_ids), sampling=sampling
    )
    for whole, cut in zip(endless, stopping, strict=True):
        ends = [place for place, i in enumerate(whole.ids) if i in stop_ids]
        assert cut.stopped == bool(ends)
        end = ends[0] if ends else NEW
        assert cut.ids == whole.ids[:end]
        # Exact: the shapes are the same, and rows know nothing of one another.
        assert cut.log_probabilities == whole.log_probabilities[: end + 1]


@dataclass
class Countdown:
    """A model that counts each row down to 0 and goes on with 9, 8, …, and counts its calls."""

    calls: int = 0

    def init_state(self, batch: int, capacity: int) -> list[int]:
        assert batch
        return [capacity]

    def extend(
        self, ids: Tensor, states: list[int], keep: Tensor | None = None
    ) -> tuple[Tensor, list[int]]:
        self.calls += 1
        left = [states[0] - (ids.shape[1] if keep is None else int(keep.sum(1).max()))]
        assert left[0] >= 0, "more tokens than the capacity that was asked for"
        last = ids[:, -1] if keep is None else ids[torch.arange(len(ids)), keep.sum(1) - 1]
        return torch.nn.functional.one_hot((last - 1) % 10, 10).double(), left


def test_it_stops_calling_the_model_when_every_row_has_stopped() -> None:
    model = Countdown()
    generated = generate_ids(model, [[2], [1, 4]], max_new_tokens=100, stop_ids=(0,))
    assert [new.ids for new in generated] == [[1], [3, 2, 1]]
    assert [new.stopped for new in generated] == [True, True]
    assert [len(new.log_probabilities) for new in generated] == [2, 4]
    assert model.calls == 4


def test_log_probabilities_do_not_depend_on_how_many_are_computed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = generate_ids(Countdown(), [[2], [1, 4]], max_new_tokens=7)
    for together in (1, 60, 10**6):
        monkeypatch.setattr(import_module("regard.decoding.generate"), "SCORED_TOGETHER", together)
        assert generate_ids(Countdown(), [[2], [1, 4]], max_new_tokens=7) == expected, together


def test_the_last_token_is_not_fed_back() -> None:
    model = Countdown()
    assert generate_ids(model, [[9]], max_new_tokens=3)[0].ids == [8, 7, 6]
    assert model.calls == 3


def test_a_stream_asks_the_model_for_no_more_than_is_taken() -> None:
    model = Countdown()
    taken = islice(stream(model, [[9]], max_new_tokens=100), 3)
    assert [int(token) for token, _ in taken] == [8, 7, 6]
    assert model.calls == 3


def test_a_stop_token_in_the_prompt_does_not_stop() -> None:
    generated = generate_ids(Countdown(), [[0]], max_new_tokens=2, stop_ids=(0,))[0]
    # The logarithm of the share of one logit that is 1 where nine others are 0.
    score = log(e / (e + 9))
    assert (generated.ids, generated.stopped) == ([9, 8], False)
    # A float32 between 1 and 2, and the sum of ten.
    eps = torch.finfo(torch.float32).eps
    assert generated.log_probabilities == pytest.approx([score] * 2, rel=8 * eps)


# Capacity


def test_a_text_may_fill_the_block_and_no_more() -> None:
    """The last new token needs no place: nothing comes after it."""
    model, prompt = tiny_model(), [1] * 6
    new = BLOCK - len(prompt) + 1
    assert generate_ids(model, [prompt, [2]], max_new_tokens=new)[0].ids == greedily(
        model, prompt, new
    )
    with pytest.raises(
        ValueError, match=f"{BLOCK + 1} tokens don't fit the model's context length"
    ):
        generate_ids(model, [[2], prompt], max_new_tokens=new + 1)


class Elsewhere(nn.Module):
    """A model on another device, which notes where its ids are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, device="meta"))
        self.seen: list[str] = []

    def init_state(self, batch: int, capacity: int) -> None:
        del batch, capacity

    def extend(self, ids: Tensor, states: None, mask: object = None) -> tuple[Tensor, None]:
        del mask
        self.seen.append(ids.device.type)
        return torch.zeros(len(ids), 5), states


def test_ids_go_to_the_device_of_the_model() -> None:
    model = Elsewhere()
    generate_ids(model, [[1, 2]], max_new_tokens=1)
    assert model.seen == ["meta"]


@pytest.mark.parametrize(
    ("prompts", "new", "says"),
    [([[1], []], 3, "none of them empty"), ([], 3, "rows of ids"), ([[1]], 0, "must be ≥ 1")],
)
def test_ids_that_nothing_follows_are_refused(
    prompts: list[list[int]], new: int, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        generate_ids(Elsewhere(), prompts, max_new_tokens=new)
