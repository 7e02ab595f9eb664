"""The study concepts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.models.head_config import EmbeddingHeadConfig
from regard.studies.quiz.checks import (
    BOTH_WAYS,
    DECODER,
    RNN,
    WINDOW,
    Draw,
    influence,
    long_inputs,
    next_tokens,
    sigmoid,
    trained,
)
from regard.studies.quiz.concepts import concepts
from tiny_studies import broken, measured


def test_the_verdict_and_the_sixteen_answers() -> None:
    finding = concepts()
    assert broken(finding.numbers) == []
    assert finding.table is not None
    assert [row[0] for row in finding.table.rows] == [str(i) for i in range(1, 17)]
    assert {row[-1] for row in finding.table.rows} == {"yes"}
    found = measured(finding)
    assert found["9: sum of the products"] == pytest.approx(1, abs=1e-12)
    assert found["8: dimensions"] == 3
    assert found["16: runs refused by the fingerprint"] == 1


def test_an_rnn_of_large_weights_does_not_forget() -> None:
    name = "13: RNN, share of the influence at a long distance"
    assert broken(long_inputs(Draw(0, 0.5))) == [name]


@settings(max_examples=8)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 1000))
def test_the_probabilities_of_all_texts_add_up_to_1(tokens: int, length: int, seed: int) -> None:
    draw = Draw(seed, 0.5, tokens, length)
    assert len(draw.texts.unique(dim=0)) == tokens**length
    with torch.no_grad():
        (total,) = next_tokens(draw)
    assert total.measured == pytest.approx(1, abs=1e-12)


def test_influence_is_the_change_by_one_token() -> None:
    draw = Draw(3, 0.3)
    body, ids = draw.model(DECODER).body, draw.ids(5)
    found = influence(body, ids)
    changed = ids.clone()
    changed[1] = 0
    with torch.inference_mode():
        moved = (body(changed[None]) - body(ids[None]))[0]
    assert found[:, 1].tolist() == pytest.approx(moved.norm(dim=-1).tolist(), abs=1e-12)


def test_influence_shows_who_sees_whom() -> None:
    draw = Draw(1, 0.3)
    ids = draw.ids(9)
    seen = {
        config: influence(draw.model(config).body, ids) > 1e-9 for config in (RNN, WINDOW, DECODER)
    }
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    assert torch.equal(seen[RNN], causal)
    assert torch.equal(seen[DECODER], causal)
    assert torch.equal(seen[WINDOW], causal.triu(1 - WINDOW.size))
    assert (influence(draw.model(BOTH_WAYS, EmbeddingHeadConfig()).body, ids) > 1e-9).all()


@settings(max_examples=10)
@given(st.floats(0.05, 0.95))
def test_a_trained_model_has_the_shares_of_its_data(share: float) -> None:
    assert sigmoid(trained(0.0, share, steps=3000)) == pytest.approx(share, abs=1e-4)
