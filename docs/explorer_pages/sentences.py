"""Small English in which some words depend on others, and it is known on which.

Four kinds of texts. «Today the dog sitting in the car barked.»: the verb is one of the dog's, and
the car has verbs of its own. «Ada met Otto near the train. She painted.»: everybody has a hobby,
and the pronoun says whose it is. «The children like to play in the park.» and «… like the play in
the theatre.»: the place depends on what "play" means. «I wanted to have a party.», «I bought a cake
for it.»: what is bought depends on the event. Each list is long enough, and openers and adjectives
come and go, so that no distance and no place in the text gives the word away.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from regard.tasks.rng import choice, generator, index, sample

SUBJECTS = {
    "dog": (("barked", "growled"), "kennel"),
    "cat": (("purred", "meowed"), "cushion"),
    "horse": (("neighed", "galloped"), "stable"),
    "bird": (("sang", "flew"), "nest"),
    "cow": (("mooed", "grazed"), "barn"),
    "bee": (("buzzed", "stung"), "hive"),
    "car": (("honked", "skidded"), "garage"),
    "train": (("whistled", "rattled"), "station"),
}
"""Noun → verbs that no other has, and where it goes."""
MOVES = ("ran", "came", "went")
"""Verbs that all nouns have: where they lead to depends on the noun."""
HOBBIES = {
    "She": {"Ada": "painted", "Mary": "danced", "Nora": "swam", "Vera": "baked", "Olga": "climbed"},
    "He": {"Otto": "fished", "John": "cooked", "Emil": "rowed", "Hugo": "wrote", "Leon": "skated"},
}
"""Pronoun → name → what that person does."""
EVENTS = {
    "party": ("cake", "candle"),
    "picnic": ("melon", "blanket"),
    "wedding": ("ring", "dress"),
    "trip": ("map", "tent"),
    "concert": ("ticket", "flute"),
    "dinner": ("goose", "pie"),
}
"""Event → what is bought for it."""
PLAYS = {
    "to play": ("in the park", "in the garden", "on the grass", "with the ball"),
    "the play": ("in the theatre", "on the stage", "about the king", "about the war"),
}
"""Verb and noun, each with what may follow."""

_OPENERS = ("Today", "Once", "Yesterday", "Suddenly")
_ADJECTIVES = ("old", "small", "big", "brown", "black", "loud")
_PARTICIPLES = ("sitting", "waiting", "standing", "hiding")
_PREPOSITIONS = ("in", "near", "behind", "under")
_MEETINGS = ("met", "saw", "called", "visited")
_WHEN = ("again", "there", "later", "alone")
_PLAYERS = ("children", "boys", "girls", "friends")
_LIKES = ("like", "love", "prefer")
_BUYERS = ("I", "We", "You", "They")


@dataclass(frozen=True)
class Text:
    """One or two sentences as words and marks, each a token, and where some of them stand."""

    first: tuple[str, ...]
    second: tuple[str, ...] = ()
    places: dict[str, int] = field(default_factory=dict)
    """Role → place, counted through both sentences."""

    @property
    def pair(self) -> tuple[str, str]:
        """Both sentences as they are written; the second may be empty."""
        return written(self.first), written(self.second)

    @property
    def line(self) -> str:
        """Both sentences in a line."""
        return " ".join(filter(None, self.pair))


def written(words: tuple[str, ...]) -> str:
    """Words as a sentence."""
    return " ".join(words).replace(" .", ".")


def texts(seed: int, purpose: str, n: int) -> list[Text]:
    """Texts of all kinds, equally often."""
    draw = generator(seed, purpose)
    kinds = (subject_text, pronoun_text, play_text, event_text)
    return [choice(draw, kinds)(draw) for _ in range(n)]


def texts_of(kind: Callable[[Random], Text], seed: int, n: int) -> list[Text]:
    """New texts of one kind, to measure on."""
    draw = generator(seed, kind.__name__, "measured")
    return [kind(draw) for _ in range(n)]


def subject_text(draw: Random) -> Text:
    """A subject, perhaps with another noun in its way, and what it does."""
    return _subject_text(draw, _way(draw) if index(draw, 2) else ((), ""), bool(index(draw, 2)))


def clause_text(draw: Random) -> Text:
    """A subject that does what no other noun does, always with another noun in its way."""
    return _subject_text(draw, _way(draw), moves=False)


def moving_text(draw: Random) -> Text:
    """A subject that goes where it goes; only the subject tells where."""
    return _subject_text(draw, _way(draw) if index(draw, 2) else ((), ""), moves=True)


Way = tuple[tuple[str, ...], str]
"""Words between a subject and its verb, and the noun among them."""


def _way(draw: Random) -> Way:
    noun = choice(draw, list(SUBJECTS))
    start = [choice(draw, _PARTICIPLES)] if index(draw, 4) else []
    return (*start, choice(draw, _PREPOSITIONS), *_phrase(draw, "the", noun)), noun


def _subject_text(draw: Random, way: Way, moves: bool) -> Text:
    between, other = way
    noun = choice(draw, [one for one in SUBJECTS if one != other])
    opener = _maybe(draw, _OPENERS)
    words = [*opener, *_phrase(draw, "the" if opener else "The", noun)]
    places = {"subject": len(words) - 1}
    words += between
    if other:
        places["other"] = len(words) - 1
    places |= {"before the verb": len(words) - 1, "verb": len(words)}
    verbs, home = SUBJECTS[noun]
    if not moves:
        return Text((*words, choice(draw, verbs), "."), places=places)
    words += [choice(draw, MOVES), "to", "the", home]
    return Text((*words, "."), places=places | {"before the goal": len(words) - 2})


def pronoun_text(draw: Random) -> Text:
    """A woman and a man meet, in any order, and one of them does what she or he does."""
    women, men = (choice(draw, list(HOBBIES[pronoun])) for pronoun in ("She", "He"))
    names = sample(draw, [women, men], 2)
    meeting = choice(draw, _MEETINGS)
    where = ("near", *_phrase(draw, "the", choice(draw, list(SUBJECTS)))) if index(draw, 2) else ()
    opener = _maybe(draw, _OPENERS)
    first = (*opener, names[0], meeting, names[1], *where, ".")
    pronoun, name = choice(draw, [("She", women), ("He", men)])
    second = (pronoun, HOBBIES[pronoun][name], *_maybe(draw, _WHEN), ".")
    meant = first.index(name)
    other = first.index(men if name == women else women)
    return Text(first, second, {"pronoun": len(first), "meant": meant, "other": other})


def play_text(draw: Random) -> Text:
    """Some people like something; "play" is a noun or a verb."""
    meaning = choice(draw, list(PLAYS))
    return _play_text(draw, meaning)


def verb_text(draw: Random) -> Text:
    """ "play" as a verb."""
    return _play_text(draw, "to play")


def noun_text(draw: Random) -> Text:
    """ "play" as a noun."""
    return _play_text(draw, "the play")


def _play_text(draw: Random, meaning: str) -> Text:
    words = ("The", choice(draw, _PLAYERS), choice(draw, _LIKES), *meaning.split())
    end = choice(draw, PLAYS[meaning]).split()
    return Text((*words, *end, "."), places={"play": len(words) - 1})


def event_text(draw: Random) -> Text:
    """An event is planned, and something is bought for it."""
    event, buyer = choice(draw, list(EVENTS)), choice(draw, _BUYERS)
    plan = choice(draw, (("wanted", "to", "have", "a"), ("planned", "a")))
    first = (buyer, *plan, *_maybe(draw, _ADJECTIVES), event, ".")
    bought = (buyer, "bought", *_phrase(draw, "a", choice(draw, EVENTS[event])))
    second = (*bought, "for", "it", ".")
    start = len(first)
    return Text(
        first,
        second,
        {"event": start - 2, "thing": start + len(bought) - 1, "it": start + len(second) - 2},
    )


def _phrase(draw: Random, article: str, noun: str) -> tuple[str, ...]:
    return (article, *_maybe(draw, _ADJECTIVES), noun)


def _maybe(draw: Random, words: tuple[str, ...]) -> tuple[str, ...]:
    """One of some words, or none."""
    return (choice(draw, words),) if index(draw, 2) else ()
