"""Translation into an artificial language with known rules, generated from a seed.

The source is a small English: «the old baker did not see the dogs». The target puts the verb last
and the adjective after its noun; marks number, tense and agreement by suffixes; has a word for
«not» before the verb, and none for «the», «did» and «will». Its nouns have two genders that English
doesn't mark; an adjective agrees with its noun in gender and number, a verb with its subject in
number. Word-by-word translation therefore fails.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Literal, get_args

import msgspec

from regard.metrics import bleu, chrf
from regard.tasks.examples import Example
from regard.tasks.rng import choice, generator, index, shuffled
from regard.tasks.split import (
    Answers,
    Scores,
    Split,
    TextTaskConfig,
    cut,
    draw_distinct,
    exact_matches,
)

Tense = Literal["past", "present", "future"]

NOUNS = (
    *("baker", "sailor", "farmer", "teacher", "doctor", "painter", "singer", "neighbour"),
    *("dog", "horse", "bird", "cat", "boat", "garden", "letter", "song"),
)
ADJECTIVES = (
    *("old", "young", "small", "big", "tired", "quiet", "clever", "happy"),
    *("strange", "famous"),
)
VERBS = (
    *("follow", "clean", "call", "visit", "remember", "love"),
    *("paint", "expect", "ignore", "admire", "find", "see"),
)
_IRREGULAR_PAST = {"find": "found", "see": "saw"}
_VOWELS, _CONSONANTS = "aeiou", "bdfgklmnprstvz"


class TranslationConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="translation"):
    """English → an invented language, determined by the seed."""

    def make(self, seed: int) -> Split:
        """Make sentences and their translations; `self.seed` determines the language.

        Raises:
            UserError: there are fewer different sentences.
        """
        language = make_language(self.seed)

        def pair(draw: Random) -> tuple[str, str]:
            sentence = draw_sentence(draw)
            return english(sentence), translate(language, sentence)

        draw = generator(self.seed, seed, "translation")
        pairs = draw_distinct("translation", pair, draw, self.training + self.test)
        return cut("translation", pairs, self.training)

    def score(self, answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
        return exact_matches(answered, right) | {
            "BLEU": bleu(answered, right, seed=seed).interval,
            "chrF": chrf(answered, right, seed=seed).interval,
        }

    def baselines(self, training: Sequence[Example], test: Sequence[Example]) -> Answers:
        language = make_language(self.seed)
        return {"word by word": [word_by_word(language, q.text) for q in test]}


class NounPhrase(msgspec.Struct, frozen=True, kw_only=True):
    """Subject or object of a sentence, such as «the old bakers»."""

    noun: str
    adjective: str | None = None
    plural: bool = False


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence as a tree, the source of the English text and its translation."""

    subject: NounPhrase
    verb: str
    object: NounPhrase
    tense: Tense = "present"
    negated: bool = False


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """An invented language.

    A stem ends in a vowel and has no two in a row; a suffix begins with one. So each can be told
    from the other.
    """

    stems: Mapping[str, str]
    """English noun, adjective or verb → stem."""
    genders: Mapping[str, int]
    """English noun → its gender, 0 or 1."""
    gender_suffixes: tuple[str, str]
    """Of adjectives."""
    plural_suffixes: tuple[str, str]
    """Plural suffixes of nouns and their adjectives, by gender."""
    tense_suffixes: Mapping[Tense, str]
    verb_plural: str
    """Suffix of a verb whose subject is in the plural, after the tense's."""
    negation: str
    """Word for «not», before the verb."""


def make_language(seed: int) -> Language:
    """Invent a language: its words, its suffixes, the genders of its nouns."""
    draw = generator(seed, "language")
    syllables = [consonant + vowel for consonant, vowel in product(_CONSONANTS, _VOWELS)]
    words = shuffled(draw, list(product(syllables, repeat=2)))
    stems = {
        word: "".join(stem) + (choice(draw, syllables) if index(draw, 2) else "")
        for word, stem in zip((*NOUNS, *ADJECTIVES, *VERBS), words, strict=False)
    }
    suffixes = shuffled(draw, [vowel + c for vowel, c in product(_VOWELS, _CONSONANTS)])
    half = len(NOUNS) // 2
    return Language(
        stems=stems,
        genders={noun: i // half for i, noun in enumerate(shuffled(draw, NOUNS))},
        gender_suffixes=(suffixes[0], suffixes[1]),
        plural_suffixes=(suffixes[2], suffixes[3]),
        tense_suffixes=dict(zip(get_args(Tense), suffixes[4:], strict=False)),
        verb_plural=suffixes[7],
        negation=choice(draw, syllables),
    )


def draw_sentence(draw: Random) -> Sentence:
    """Draw one of about nine million sentences."""
    return Sentence(
        subject=_draw_noun_phrase(draw),
        verb=choice(draw, VERBS),
        object=_draw_noun_phrase(draw),
        tense=choice(draw, get_args(Tense)),
        negated=draw.random() < 0.5,
    )


def english(sentence: Sentence) -> str:
    """Return the sentence in English."""
    subject, object_ = map(_english_noun_phrase, (sentence.subject, sentence.object))
    return f"{subject} {_english_verb(sentence)} {object_}"


def translate(language: Language, sentence: Sentence) -> str:
    """Return the sentence in the artificial language: subject, object, «not», verb."""
    negation = [language.negation] if sentence.negated else []
    return " ".join(
        [
            *_noun_phrase(language, sentence.subject),
            *_noun_phrase(language, sentence.object),
            *negation,
            _verb(language, sentence.verb, sentence.tense, plural=sentence.subject.plural),
        ]
    )


def word_by_word(language: Language, text: str) -> str:
    """Translate each word without context, in the English order.

    Words without a translation, such as «the», are left out.
    """
    words = _dictionary(language)
    return " ".join(words[word] for word in text.split() if word in words)


def _draw_noun_phrase(draw: Random) -> NounPhrase:
    return NounPhrase(
        noun=choice(draw, NOUNS),
        adjective=choice(draw, [None, *ADJECTIVES]),
        plural=draw.random() < 0.5,
    )


def _english_noun_phrase(phrase: NounPhrase) -> str:
    noun = phrase.noun + "s" * phrase.plural
    return " ".join(["the", *([phrase.adjective] if phrase.adjective else []), noun])


def _english_verb(sentence: Sentence) -> str:
    verb, plural = sentence.verb, sentence.subject.plural
    if sentence.tense == "future":
        return f"will not {verb}" if sentence.negated else f"will {verb}"
    if sentence.tense == "past":
        return f"did not {verb}" if sentence.negated else _past(verb)
    if sentence.negated:
        return f"do not {verb}" if plural else f"does not {verb}"
    return verb if plural else verb + "s"


def _past(verb: str) -> str:
    regular = verb + "d" if verb.endswith("e") else verb + "ed"
    return _IRREGULAR_PAST.get(verb, regular)


def _noun_phrase(language: Language, phrase: NounPhrase) -> list[str]:
    gender = language.genders[phrase.noun]
    noun = _noun(language, phrase.noun, plural=phrase.plural)
    if phrase.adjective is None:
        return [noun]
    return [noun, _adjective(language, phrase.adjective, gender, plural=phrase.plural)]


def _noun(language: Language, noun: str, *, plural: bool) -> str:
    return language.stems[noun] + language.plural_suffixes[language.genders[noun]] * plural


def _adjective(language: Language, adjective: str, gender: int, *, plural: bool) -> str:
    suffix = language.gender_suffixes[gender] + language.plural_suffixes[gender] * plural
    return language.stems[adjective] + suffix


def _verb(language: Language, verb: str, tense: Tense, *, plural: bool) -> str:
    return language.stems[verb] + language.tense_suffixes[tense] + language.verb_plural * plural


def _dictionary(language: Language) -> dict[str, str]:
    """Return English word → its translation without context, in its simplest form."""
    words = {"not": language.negation}
    for noun in NOUNS:
        words[noun] = _noun(language, noun, plural=False)
        words[noun + "s"] = _noun(language, noun, plural=True)
    for adjective in ADJECTIVES:
        words[adjective] = _adjective(language, adjective, 0, plural=False)
    for verb in VERBS:
        words[verb] = _verb(language, verb, "present", plural=True)
        words[verb + "s"] = _verb(language, verb, "present", plural=False)
        words[_past(verb)] = _verb(language, verb, "past", plural=False)
    return words
