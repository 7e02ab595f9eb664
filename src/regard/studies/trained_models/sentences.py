"""Texts of two sentences with known dependencies between words.

«surely the old dogs near the house bark with Ada . perhaps she looked at the tree and opened the
red door ?»: the verb depends on its subject and agrees with it in number, a particle on the verb
before it, the mark at the end on the first word of the sentence, the pronoun on the name alone, and
the object on its verb. Adjectives and adverbs are optional, so most of the distances vary.
"""

from itertools import chain
from random import Random
from typing import NamedTuple

from regard.tasks.rng import choice, generator, index

RELATIONS = ("previous word", "sentence start", "subject–verb", "verb–object", "pronoun")

_OPENERS = {
    ".": ("surely", "indeed", "certainly"),
    "?": ("perhaps", "maybe", "possibly"),
    "!": ("alas", "behold", "hurrah"),
}
_PARTICLES = {
    "waited": "for",
    "looked": "at",
    "listened": "to",
    "laughed": "about",
    "leaned": "on",
    "cared": "of",
}
_VERBS = {"dog": "bark", "bird": "sing", "horse": "neigh", "bell": "ring"}
_OBJECTS = {"poured": "tea", "printed": "book", "opened": "door", "baked": "bread"}
_PLACES = ("house", "tree", "wall", "river", "hill", "bridge")
_PREPOSITIONS = ("near", "behind", "beside", "under")
_ADJECTIVES = ("old", "small", "red", "quiet", "famous", "strange")
_ADVERBS = ("later", "soon", "today", "again")
_NAMES = {
    "she": ("Ada", "Elsa", "Nora", "Vera", "Olga"),
    "he": ("Emil", "Hugo", "Otto", "Igor", "Leon"),
    "they": ("friends", "twins", "neighbours", "guests", "strangers"),
}


class Labeled(NamedTuple):
    """Words, each a token, and pairs of places (dependent, other word) by relation."""

    words: tuple[str, ...]
    pairs: dict[str, tuple[tuple[int, int], ...]]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def labeled_texts(seed: int, purpose: str, n: int) -> list[Labeled]:
    """Return n texts."""
    draw = generator(seed, purpose)
    return [_text(draw) for _ in range(n)]


def word_classes() -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the words of each class; forms of the same word are grouped."""
    inflected = {"noun": (*_VERBS, *_PLACES), "verb": tuple(_VERBS.values())}
    others = {
        "noun": tuple(_OBJECTS.values()),
        "verb": (*_PARTICLES, *_OBJECTS),
        "adjective": _ADJECTIVES,
        "adverb": _ADVERBS,
        "preposition": _PREPOSITIONS,
        "name": tuple(chain(*_NAMES.values())),
        "opener": tuple(chain(*_OPENERS.values())),
    }
    return {
        kind: (*((w, f"{w}s") for w in inflected.get(kind, ())), *((w,) for w in words))
        for kind, words in others.items()
    }


def _text(draw: Random) -> Labeled:
    (mark, opener), (next_mark, next_opener) = _opening(draw), _opening(draw)
    noun, pronoun = choice(draw, list(_VERBS)), choice(draw, list(_NAMES))
    plural, particle_verb = bool(index(draw, 2)), choice(draw, list(_PARTICLES))
    words: list[str] = []

    def add(*more: str) -> int:
        """Add words, and return the place of the last."""
        words.extend(more)
        return len(words) - 1

    start = add(opener)
    subject = add(*_noun_phrase(draw, noun, plural))
    if index(draw, 2):
        add(choice(draw, _PREPOSITIONS), *_place(draw))
    verb = add(_VERBS[noun] + ("" if plural else "s"))
    name = add("with", choice(draw, _NAMES[pronoun]))
    add(*_maybe(draw, _ADVERBS))
    end, next_start = add(mark), add(next_opener)
    add(*_maybe(draw, _ADVERBS))
    reference, before = add(pronoun), add(particle_verb)
    particle = add(_PARTICLES[particle_verb])
    add(*_place(draw), "and")
    taking = choice(draw, list(_OBJECTS))
    object_verb = add(taking)
    taken = add(*_noun_phrase(draw, _OBJECTS[taking], False))
    pairs = {
        "previous word": ((particle, before),),
        "sentence start": ((end, start), (add(next_mark), next_start)),
        "subject–verb": ((verb, subject),),
        "verb–object": ((taken, object_verb),),
        "pronoun": ((reference, name),),
    }
    return Labeled(tuple(words), pairs)


def _opening(draw: Random) -> tuple[str, str]:
    """Return a mark that ends a sentence, and a word that opens it."""
    mark = choice(draw, list(_OPENERS))
    return mark, choice(draw, _OPENERS[mark])


def _place(draw: Random) -> list[str]:
    return _noun_phrase(draw, choice(draw, _PLACES), bool(index(draw, 2)))


def _noun_phrase(draw: Random, noun: str, plural: bool) -> list[str]:
    return ["the", *_maybe(draw, _ADJECTIVES), noun + ("s" if plural else "")]


def _maybe(draw: Random, words: tuple[str, ...]) -> list[str]:
    """Return one of some words, or none."""
    return [choice(draw, words)] if index(draw, 2) else []
