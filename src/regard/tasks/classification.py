"""Sentiment that no bag of words can classify: «the food was good but the service was bad».

Each sentence contrasts a good and a bad clause; the conjunction determines which one counts: the
clause after «but», or the clause that doesn't follow «although». Exchanging the clauses keeps the
words and changes the label, and both sentences are always in the same split, so a classifier of
word counts alone (`naive_bayes`) has an accuracy of exactly one half. The first and the last clause
each count half of the time. Half of the clauses are negated: «the room was not bad» is praise.
"""

from pathlib import Path
from random import Random
from typing import Literal

from regard.tasks.labels import LabelTaskConfig, read_labeled
from regard.tasks.rng import choice, generator, index, sample, shuffled
from regard.tasks.rows import Rows
from regard.tasks.split import Split, cut, draw_distinct

Label = Literal["positive", "negative"]

FRAMES = (
    "{other} but {counts}",
    "although {other}, {counts}",
    "{counts} although {other}",
    "{counts}, even though {other}",
)
"""Sentences of two clauses, the one that counts and the other."""

_TOPICS = (
    *("food", "service", "room", "music", "view", "coffee", "garden", "bed"),
    *("soup", "wine", "bread", "staff"),
)
_ADJECTIVES = {
    "positive": ("good", "great", "lovely", "excellent", "pleasant", "perfect", "charming"),
    "negative": ("bad", "awful", "poor", "terrible", "dull", "dreadful", "horrible"),
}
_VERBS = {
    "positive": ("like", "love", "enjoy", "admire"),
    "negative": ("hate", "dislike", "detest", "resent"),
}
_OPPOSITE: dict[Label, Label] = {"positive": "negative", "negative": "positive"}


class ClassificationConfig(LabelTaskConfig, frozen=True, tag_field="kind", tag="classification"):
    """«The food was good but the service was bad» → «negative»."""

    def __post_init__(self) -> None:
        for field in ("training", "test"):
            if getattr(self, field) % 2:
                raise ValueError(
                    f"{field} = {getattr(self, field)} is odd, but examples come in pairs with "
                    "the same words and different labels: choose an even number"
                )

    def make(self, seed: int) -> Split:
        """Make sentences labeled "positive" or "negative", half of each in training and test.

        Raises:
            UserError: there are fewer different sentences.
        """
        draw = generator(self.seed, seed, "classification")
        n = (self.training + self.test) // 2
        contrasts = draw_distinct("classification", _draw_contrast, draw, n)
        training, test = contrasts[: self.training // 2], contrasts[self.training // 2 :]
        pairs = [
            *shuffled(draw, [pair for contrast in training for pair in _both_ways(*contrast)]),
            *shuffled(draw, [pair for contrast in test for pair in _both_ways(*contrast)]),
        ]
        return cut("classification", pairs, self.training)

    def read_lines(self, path: Path) -> Rows:
        return read_labeled(path)


def _draw_contrast(draw: Random) -> tuple[str, str, str]:
    """Draw a frame, a good clause and a bad one."""
    praised, blamed = sample(draw, _TOPICS, 2)
    good, bad = _clause(draw, praised, "positive"), _clause(draw, blamed, "negative")
    return choice(draw, FRAMES), good, bad


def _both_ways(frame: str, good: str, bad: str) -> list[tuple[str, Label]]:
    return [
        (frame.format(counts=good, other=bad), "positive"),
        (frame.format(counts=bad, other=good), "negative"),
    ]


def _clause(draw: Random, topic: str, label: Label) -> str:
    """Return a clause with this label: a statement, or a negated statement of the opposite."""
    denied = index(draw, 2) == 1
    said = _OPPOSITE[label] if denied else label
    if index(draw, 2):
        adjective = choice(draw, _ADJECTIVES[said])
        return f"the {topic} was not {adjective}" if denied else f"the {topic} was {adjective}"
    verb = choice(draw, _VERBS[said])
    past = verb + "d" if verb.endswith("e") else verb + "ed"
    return f"I did not {verb} the {topic}" if denied else f"I {past} the {topic}"
