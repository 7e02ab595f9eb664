"""A translation is read back by the rules alone: it loses nothing and adds nothing."""

import re

from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.rng import generator
from regard.tasks.translation import (
    ADJECTIVES,
    NOUNS,
    VERBS,
    Language,
    NounPhrase,
    Sentence,
    Tense,
    TranslationConfig,
    draw_sentence,
    english,
    make_language,
    translate,
    word_by_word,
)

TENSES: list[Tense] = ["past", "present", "future"]
noun_phrases = st.builds(
    NounPhrase,
    noun=st.sampled_from(NOUNS),
    adjective=st.none() | st.sampled_from(ADJECTIVES),
    plural=st.booleans(),
)
sentences = st.builds(
    Sentence,
    subject=noun_phrases,
    verb=st.sampled_from(VERBS),
    object=noun_phrases,
    tense=st.sampled_from(TENSES),
    negated=st.booleans(),
)
languages = st.integers(0, 2**32 - 1).map(make_language)
WORD = re.compile(r"((?:[^aeiou][aeiou])+)((?:[aeiou][^aeiou])*)")


def take_apart(language: Language, word: str) -> tuple[str, list[str]]:
    """The English word of a stem, and its suffixes."""
    found = WORD.fullmatch(word)
    assert found, word
    english_of = {stem: word for word, stem in language.stems.items()}
    return english_of[found[1]], re.findall("..", found[2])


def read_phrase(language: Language, words: list[str]) -> NounPhrase:
    """Take a noun phrase from the front of some words."""
    noun, suffixes = take_apart(language, words.pop(0))
    gender = language.genders[noun]
    plural = [language.plural_suffixes[gender]]
    assert suffixes in ([], plural)
    if take_apart_or_none(language, words[0]) not in ADJECTIVES:
        return NounPhrase(noun=noun, plural=suffixes == plural)
    adjective, agreement = take_apart(language, words.pop(0))
    assert agreement == [language.gender_suffixes[gender], *suffixes]
    return NounPhrase(noun=noun, adjective=adjective, plural=suffixes == plural)


def take_apart_or_none(language: Language, word: str) -> str | None:
    return None if word == language.negation else take_apart(language, word)[0]


def read(language: Language, text: str) -> Sentence:
    """The tree of a sentence of the invented language."""
    words = text.split()
    subject, object_ = read_phrase(language, words), read_phrase(language, words)
    negated = words[0] == language.negation
    (last,) = words[negated:]
    verb, suffixes = take_apart(language, last)
    tense_of = {suffix: tense for tense, suffix in language.tense_suffixes.items()}
    assert suffixes[1:] == [language.verb_plural] * subject.plural
    return Sentence(
        subject=subject,
        verb=verb,
        object=object_,
        tense=tense_of[suffixes[0]],
        negated=negated,
    )


@given(languages, sentences)
def test_a_translation_says_what_the_sentence_says(language: Language, sentence: Sentence) -> None:
    assert read(language, translate(language, sentence)) == sentence


@given(languages)
def test_all_words_and_all_suffixes_of_a_language_differ(language: Language) -> None:
    assert set(language.stems) == {*NOUNS, *ADJECTIVES, *VERBS}
    words = [*language.stems.values(), language.negation]
    assert len(set(words)) == len(words)
    suffixes = [
        *language.gender_suffixes,
        *language.plural_suffixes,
        *language.tense_suffixes.values(),
        language.verb_plural,
    ]
    assert len(set(suffixes)) == len(suffixes) == 8
    assert set(language.tense_suffixes) == set(TENSES)
    assert sorted(language.genders.values()) == [0] * 8 + [1] * 8


@given(sentences, sentences)
def test_unlike_sentences_are_unlike_in_english(first: Sentence, second: Sentence) -> None:
    assert (english(first) == english(second)) == (first == second)


BAKER, OLD_DOGS = NounPhrase(noun="baker"), NounPhrase(noun="dog", adjective="old", plural=True)


def test_english_by_example() -> None:
    cases: list[tuple[NounPhrase, str, Tense, bool, str]] = [
        (BAKER, "see", "present", False, "the baker sees the old dogs"),
        (BAKER, "see", "present", True, "the baker does not see the old dogs"),
        (BAKER, "see", "past", False, "the baker saw the old dogs"),
        (BAKER, "find", "past", False, "the baker found the old dogs"),
        (BAKER, "admire", "past", False, "the baker admired the old dogs"),
        (BAKER, "visit", "past", False, "the baker visited the old dogs"),
        (BAKER, "see", "past", True, "the baker did not see the old dogs"),
        (BAKER, "see", "future", False, "the baker will see the old dogs"),
        (BAKER, "see", "future", True, "the baker will not see the old dogs"),
        (OLD_DOGS, "call", "present", False, "the old dogs call the old dogs"),
        (OLD_DOGS, "call", "present", True, "the old dogs do not call the old dogs"),
        (OLD_DOGS, "call", "past", True, "the old dogs did not call the old dogs"),
    ]
    for subject, verb, tense, negated, expected in cases:
        sentence = Sentence(
            subject=subject, verb=verb, object=OLD_DOGS, tense=tense, negated=negated
        )
        assert english(sentence) == expected


@given(languages, sentences)
def test_word_by_word_has_the_right_stems_in_the_order_of_english(
    language: Language, sentence: Sentence
) -> None:
    words = word_by_word(language, english(sentence)).split()
    expected = [
        *filter(None, [sentence.subject.adjective]),
        sentence.subject.noun,
        *(["not"] if sentence.negated else []),
        sentence.verb,
        *filter(None, [sentence.object.adjective]),
        sentence.object.noun,
    ]
    assert [take_apart_or_none(language, word) or "not" for word in words] == expected


def test_there_are_millions_of_sentences() -> None:
    """Birthdays: of 20 000 drawn from 9 million, about 22 were drawn before."""
    draw = generator(0, "birthdays")
    drawn = [draw_sentence(draw) for _ in range(20_000)]
    assert 5 < len(drawn) - len(set(drawn)) < 50


def test_the_task_is_sentences_with_their_translations() -> None:
    language = make_language(3)
    split = TranslationConfig(training=200, test=50, seed=3).make(0)
    for question in (*split.training, *split.test):
        sentence = read(language, str(question.answer))
        assert question.text == english(sentence)
