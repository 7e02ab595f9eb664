"""The study `head-patterns`, on models that were not trained."""

import pytest

from regard.studies.trained_models.before_training import PATTERNS, score
from regard.studies.trained_models.heads import by_layer
from regard.studies.trained_models.reading import HEADS, LAYERS, plan_decoder, plan_reader
from regard.studies.trained_models.sentences import labeled_texts

TEXTS = [text.text for text in labeled_texts(0, "test", 4)]


def test_untrained_heads_are_nearly_uniform_and_go_where_they_may() -> None:
    encoder, decoder = (score(plan.run, TEXTS) for plan in (plan_reader(1, 0), plan_decoder(1, 0)))
    assert len(encoder) == len(decoder) == LAYERS * HEADS
    assert by_layer(encoder, "entropy").mean() > 0.95
    assert float(by_layer(decoder, "causal").mean()) == pytest.approx(1, abs=1e-6)
    assert 0.4 < by_layer(encoder, "causal").mean() < 0.7
    assert by_layer(decoder, "next").mean() == 0


def test_layers_share_the_heads() -> None:
    scored = score(plan_reader(1, 0).run, TEXTS)
    for pattern in PATTERNS:
        rows = by_layer(scored, pattern)
        assert rows.shape == (LAYERS, HEADS)
        assert [x for row in rows.tolist() for x in row] == [one.scores[pattern] for one in scored]
