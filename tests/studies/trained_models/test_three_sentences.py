"""The study `three-sentences`."""

from pathlib import Path

import pytest

from regard.studies.finding import Verdict
from regard.studies.trained_models.decoders import (
    ACROSS,
    PRONOUN,
    SHORT,
    Found,
    best,
    change_of_first,
    judged_sentences,
    places_of,
    three_sentences,
    weights_on,
)
from regard.studies.trained_models.reading import HEADS, LAYERS, plan_decoder
from regard.studies.trained_models.sentences import labeled_texts

TEXTS = labeled_texts(0, "test", 12)
AFTER = Found(head=0, share=0.9, itself=0.05)
BEFORE = AFTER._replace(share=0.1)


def test_the_query_is_the_verb_or_the_word_before_the_next() -> None:
    places = places_of(TEXTS)
    for place in places[SHORT]:
        assert place.query == place.key + 1, "the verb stands right behind its subject"
    for place in places[ACROSS]:
        ((verb, subject),) = place.text.pairs["subject–verb"]
        assert (place.query, place.key) == (verb - 1, subject)
        assert place.query > place.key, "another noun"
    assert len(places[SHORT]) + len(places[ACROSS]) == len(places[PRONOUN]) == len(TEXTS)


def test_the_claim_needs_every_measurement() -> None:
    after = dict.fromkeys((SHORT, ACROSS, PRONOUN), AFTER)
    before = dict.fromkeys(after, BEFORE)
    assert all(number.holds for number in judged_sentences(after, before, 0.95))
    for broken in (
        {ACROSS: AFTER._replace(share=0.4)},
        {ACROSS: AFTER._replace(itself=0.6)},
        {PRONOUN: AFTER._replace(share=0.4)},
    ):
        assert not all(number.holds for number in judged_sentences(after | broken, before, 0.95))
    assert not all(number.holds for number in judged_sentences(after, after, 0.95))
    assert not all(number.holds for number in judged_sentences(after, before, 0.5))


def test_the_first_word_has_read_only_itself_and_heads_begin_uniform() -> None:
    run = plan_decoder(1, 0).run
    run.model.eval()
    assert change_of_first(run, TEXTS) <= 1e-5
    places = places_of(TEXTS)[PRONOUN]
    found = best(weights_on(run, places), places)
    assert 0 <= found.head < LAYERS * HEADS
    assert found.share < 0.3


@pytest.mark.slow
def test_hardly_trained_no_head_finds_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert three_sentences(steps=2).verdict is Verdict.FAILS


@pytest.mark.findings
def test_the_verdict() -> None:
    assert three_sentences().verdict is Verdict.HOLDS
