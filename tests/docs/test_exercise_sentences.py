"""In each text, words depend on the words that they are said to depend on."""

from collections.abc import Callable
from itertools import chain, combinations
from random import Random
from typing import Any

import pytest
from exercise_files import sentences
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.tasks.rng import generator
from regard.text.config import WordsConfig
from regard.text.template import Affixes, Template, TemplateConfig
from regard.text.tokenizer import train_tokenizer
from tiny import MASK

KINDS: dict[str, Callable[[Random], Any]] = {
    name: getattr(sentences, f"{name}_text")
    for name in ("subject", "clause", "moving", "pronoun", "play", "verb", "noun", "event")
}
seeds = st.integers(0, 10_000)


def drawn(kind: str, seed: int) -> tuple[Any, dict[str, str]]:
    """A text, and the word of each role."""
    text = KINDS[kind](generator(seed, "test"))
    words = text.first + text.second
    return text, {role: words[place] for role, place in text.places.items()}


@settings(max_examples=100)
@given(st.sampled_from(["subject", "clause", "moving"]), seeds)
def test_the_verb_and_the_goal_are_the_subjects(kind: str, seed: int) -> None:
    text, words = drawn(kind, seed)
    verbs, home = sentences.SUBJECTS[words["subject"]]
    assert text.first[text.places["before the verb"] + 1] == words["verb"]
    if "before the goal" in words:
        assert words["verb"] in sentences.MOVES
        assert text.first[text.places["before the goal"] + 1] == home
    else:
        assert words["verb"] in verbs
    if "other" in words:
        assert words["other"] in sentences.SUBJECTS
        assert words["other"] != words["subject"]
        assert text.places["subject"] < text.places["other"] == text.places["before the verb"]
    assert kind != "clause" or "other" in words
    assert kind != "moving" or "before the goal" in words


@settings(max_examples=100)
@given(seeds)
def test_the_pronoun_does_what_the_person_does_who_is_meant(seed: int) -> None:
    text, words = drawn("pronoun", seed)
    names = sentences.HOBBIES[words["pronoun"]]
    assert text.second[:2] == (words["pronoun"], names[words["meant"]])
    assert words["other"] not in names, "the pronoun fits one of both"
    assert {words["meant"], words["other"]} <= set(text.first)


@settings(max_examples=100)
@given(st.sampled_from(["play", "verb", "noun"]), seeds)
def test_what_follows_play_fits_its_meaning(kind: str, seed: int) -> None:
    text, words = drawn(kind, seed)
    place = text.places["play"]
    meaning = " ".join(text.first[place - 1 : place + 1])
    assert words["play"] == "play"
    assert place == 4, "always in the same place, so that only the meaning differs"
    assert " ".join(text.first[place + 1 : -1]) in sentences.PLAYS[meaning]
    assert meaning == {"verb": "to play", "noun": "the play", "play": meaning}[kind]


@settings(max_examples=100)
@given(seeds)
def test_what_is_bought_fits_the_event(seed: int) -> None:
    text, words = drawn("event", seed)
    assert words["thing"] in sentences.EVENTS[words["event"]]
    assert words["it"] == "it"
    assert text.first[0] == text.second[0]
    assert text.places["event"] < len(text.first) < text.places["thing"] < text.places["it"]


@settings(max_examples=100)
@given(st.sampled_from(sorted(KINDS)), seeds)
def test_each_word_is_a_token(kind: str, seed: int) -> None:
    text = KINDS[kind](generator(seed, "test"))
    tokenizer = train_tokenizer(WordsConfig(), [text.line])
    template = Template(TemplateConfig(), tokenizer)
    ids, parts = template.join(Affixes(), *map(tokenizer.encode, text.pair))
    assert [tokenizer.decode([i]) for i in ids] == [*text.first, "<sep>", *text.second]
    assert parts == [0] * len(text.first) + [1] * (1 + len(text.second))
    assert tokenizer.encode(text.line) == [i for i in ids if i != MASK]


@pytest.mark.parametrize(
    "table",
    [
        [verbs for verbs, _ in sentences.SUBJECTS.values()],
        [[home] for _, home in sentences.SUBJECTS.values()],
        [list(names.values()) for names in sentences.HOBBIES.values()],
        list(sentences.EVENTS.values()),
        list(sentences.PLAYS.values()),
    ],
    ids=["verbs", "goals", "hobbies", "things", "places"],
)
def test_no_word_has_two_reasons(table: list[list[str]]) -> None:
    assert not any(set(a) & set(b) for a, b in combinations(table, 2))
    words = list(chain(*table))
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("kind", "query", "key"),
    [
        ("clause", "before the verb", "subject"),
        ("moving", "before the goal", "subject"),
        ("pronoun", "pronoun", "meant"),
        ("event", "thing", "event"),
    ],
)
def test_no_distance_gives_the_word_away(kind: str, query: str, key: str) -> None:
    texts = sentences.texts_of(KINDS[kind], 0, 200)
    distances = [text.places[query] - text.places[key] for text in texts]
    assert max(map(distances.count, distances)) <= 120


def test_texts_are_those_of_their_seed() -> None:
    def lines(*of: Any) -> list[str]:
        return [text.line for text in sentences.texts(*of)]

    assert lines(0, "training", 50) == lines(0, "training", 60)[:50]
    assert lines(0, "training", 50) != lines(1, "training", 50)
    assert lines(0, "training", 50) != lines(0, "measured", 50)
