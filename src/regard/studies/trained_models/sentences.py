"""Texts of two sentences in which some words depend on others, and on which is known.

«surely the old dogs near the house bark with Ada . perhaps she looks at the tree ?»: the verb is
that of its subject, in its number; a particle belongs to the verb before it, the mark at the end to
the word that opens the sentence, and the pronoun to the name. Adjectives and adverbs come and go,
so that most of the distances vary.
"""

from dataclasses import dataclass
from random import Random

from regard.tasks.rng import choice, generator, index

RELATIONS = ("previous word", "sentence start", "subject–verb", "pronoun")

_OPENERS = {
    ".": ("surely", "indeed", "certainly"),
    "?": ("perhaps", "maybe", "possibly"),
    "!": ("alas", "behold", "hurrah"),
}
_PARTICLES = {
    "wait": "for",
    "look": "at",
    "listen": "to",
    "laugh": "about",
    "lean": "on",
    "care": "of",
}
_VERBS = {
    "dog": "bark",
    "bird": "sing",
    "horse": "neigh",
    "bell": "ring",
}
_PLACES = ("house", "tree", "wall", "river", "hill", "bridge")
_PREPOSITIONS = ("near", "behind", "beside", "under")
_ADJECTIVES = ("old", "small", "red", "quiet", "famous", "strange")
_ADVERBS = ("later", "soon", "today", "again")
_NAMES = {
    "she": ("Ada", "Elsa", "Nora", "Vera", "Olga"),
    "he": ("Emil", "Hugo", "Otto", "Igor", "Leon"),
    "they": ("friends", "twins", "neighbours", "guests", "strangers"),
}


@dataclass(frozen=True)
class Labeled:
    """Words, each a token, and for each relation pairs of places: the dependent's, the other's."""

    words: tuple[str, ...]
    pairs: dict[str, tuple[tuple[int, int], ...]]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def labeled_texts(seed: int, purpose: str, n: int) -> list[Labeled]:
    """Some texts."""
    draw = generator(seed, purpose)
    return [_text(draw) for _ in range(n)]


def _text(draw: Random) -> Labeled:
    (mark, opener), (next_mark, next_opener) = _opening(draw), _opening(draw)
    noun, pronoun = choice(draw, list(_VERBS)), choice(draw, list(_NAMES))
    plural, particle_verb = bool(index(draw, 2)), choice(draw, list(_PARTICLES))
    words = [opener, *_noun_phrase(draw, noun, plural)]
    subject_at = len(words) - 1
    if index(draw, 2):
        words += [choice(draw, _PREPOSITIONS), *_place(draw)]
    verb_at = len(words)
    words += [_VERBS[noun] + ("" if plural else "s"), "with", choice(draw, _NAMES[pronoun])]
    name_at = len(words) - 1
    words += _maybe(draw, _ADVERBS)
    mark_at = len(words)
    words += [mark, next_opener, *_maybe(draw, _ADVERBS), pronoun]
    pronoun_at = len(words) - 1
    words += [particle_verb + ("" if pronoun == "they" else "s"), _PARTICLES[particle_verb]]
    words += [*_place(draw), next_mark]
    return Labeled(
        tuple(words),
        {
            "previous word": ((pronoun_at + 2, pronoun_at + 1),),
            "sentence start": ((mark_at, 0), (len(words) - 1, mark_at + 1)),
            "subject–verb": ((verb_at, subject_at),),
            "pronoun": ((pronoun_at, name_at),),
        },
    )


def _opening(draw: Random) -> tuple[str, str]:
    """The mark that ends a sentence, and a word that opens it."""
    mark = choice(draw, list(_OPENERS))
    return mark, choice(draw, _OPENERS[mark])


def _place(draw: Random) -> list[str]:
    return _noun_phrase(draw, choice(draw, _PLACES), bool(index(draw, 2)))


def _noun_phrase(draw: Random, noun: str, plural: bool) -> list[str]:
    return ["the", *_maybe(draw, _ADJECTIVES), noun + ("s" if plural else "")]


def _maybe(draw: Random, words: tuple[str, ...]) -> list[str]:
    """One of some words, or none."""
    return [choice(draw, words)] if index(draw, 2) else []
