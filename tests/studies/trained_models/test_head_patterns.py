"""The study `head-patterns`, on models that were not trained."""

import pytest

from regard.studies.trained_models.head_patterns import PATTERNS, score
from regard.studies.trained_models.reading import HEADS, LAYERS, plan_decoder, plan_reader
from regard.studies.trained_models.sentences import labeled_texts

TEXTS = [text.text for text in labeled_texts(0, "test", 4)]


def test_untrained_heads_are_nearly_uniform_and_go_where_they_may() -> None:
    encoder, decoder = (score(plan.run, TEXTS) for plan in (plan_reader(1, 0), plan_decoder(1, 0)))
    assert len(encoder.heads) == len(decoder.heads) == LAYERS * HEADS
    assert encoder.mean("entropy") > 0.95
    assert decoder.mean("causal") == pytest.approx(1, abs=1e-6)
    assert 0.4 < encoder.mean("causal") < 0.7
    assert decoder.mean("next") == 0


def test_layers_share_the_heads() -> None:
    scored = score(plan_reader(1, 0).run, TEXTS)
    layers = [scored.layer(index) for index in range(LAYERS)]
    assert [head for layer in layers for head in layer.heads] == list(scored.heads)
    for pattern in PATTERNS:
        mean = sum(layer.mean(pattern) for layer in layers) / LAYERS
        assert scored.mean(pattern) == pytest.approx(mean)
