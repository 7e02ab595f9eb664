"""The tasks that make their own data, as data. Knows no torch."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from regard.models.config_base import Config, Count, Positive, Seed

Place = Literal["first", "last"]
"""Where a task token stands: before the text, or after it."""

MOST_PEOPLE = 2000
"""People that tasks about the fictional world may have, of its 5600 names: no two of them share
both place and profession."""


class TextTaskConfig(Config, frozen=True):
    """What all tasks have in common whose examples are texts with answers."""

    training: Positive = 8000
    """Examples for training."""
    test: Positive = 500
    """Examples for testing, none of which is in training."""
    seed: Seed = 0
    """Seed of the task itself, its people or its language; its examples have the run's too."""


class PeopleTaskConfig(TextTaskConfig, frozen=True):
    """What tasks about people of the fictional world have in common."""

    people: Positive = 1000
    """People in training; each example of the test is about another one."""

    def __post_init__(self) -> None:
        if self.people + self.test > MOST_PEOPLE:
            raise ValueError(
                f"people + test = {self.people + self.test}, but the fictional world has "
                f"{MOST_PEOPLE}: ask for fewer"
            )
        if self.training < self.people:
            raise ValueError(
                f"training = {self.training} leaves some of people = {self.people} without an "
                "example: ask for more examples, or fewer people"
            )


class CasingConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="casing"):
    """«<U> I am A student» → «I AM A STUDENT», and «<L> …» → «i am a student»."""

    shortest: Positive = 8
    """Fewest characters of a text, without the task token."""
    longest: Positive = 40
    """Most characters of a text."""
    place: Place = "first"
    """Whether the task token stands before or after the text."""

    def __post_init__(self) -> None:
        if self.shortest > self.longest:
            raise ValueError(
                f"shortest = {self.shortest} is more than longest = {self.longest}: swap them"
            )


class SummariesConfig(PeopleTaskConfig, frozen=True, tag_field="kind", tag="summaries"):
    """An article about a person → «Ada Finch, a baker born in Leeds.»"""

    tellings: Positive = 2
    """How often an article tells each fact, in words that may differ."""
    filler: Annotated[int, Meta(ge=0, le=12)] = 3
    """Sentences that say nothing about anyone."""
    others: Count = 2
    """Sentences about other people, one each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fewest = min(self.people, self.test)
        if self.others >= fewest:
            raise ValueError(
                f"others = {self.others} people need as many beside the one that an article is "
                f"about, and people or test is only {fewest}: ask for fewer others"
            )


class TranslationConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="translation"):
    """English → a language that the seed invents."""


class ClassificationConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="classification"):
    """«The food was good but the service was bad» → «negative»."""

    def __post_init__(self) -> None:
        for field in ("training", "test"):
            if getattr(self, field) % 2:
                raise ValueError(
                    f"{field} = {getattr(self, field)} is odd, but each example stands beside one "
                    "of the same words and the other label: choose an even number"
                )


class TaggingConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="tagging"):
    """«Ada Marlow comes from Rigby.» → «person person other other place»"""


class EntailmentConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="entailment"):
    """A text and a statement → «follows», «contradicts» or «unknown»."""


class RetrievalConfig(PeopleTaskConfig, frozen=True, tag_field="kind", tag="retrieval"):
    """«Who comes from Leeds and bakes bread?» → the biography of that person."""


class TokensConfig(Config, frozen=True):
    """What probes have in common that answer with tokens in another order."""

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 parts a question from its answer, 1 is noise, the others are tokens."""
    length: Positive = 16
    """Tokens to be answered with."""


class MqarConfig(Config, frozen=True, tag_field="kind", tag="mqar"):
    """Multi-query associative recall: pairs of key and value, then keys alone."""

    vocabulary: Annotated[int, Meta(ge=4)] = 256
    """Number of ids: keys below its half, values from there."""
    length: Annotated[int, Meta(ge=4)] = 64
    """Ids of a row, an even number."""
    pairs: Positive = 8
    """Pairs of key and value, each asked once."""
    power: Annotated[float, Meta(gt=0, le=1)] = 0.01
    """a of the power law of the gaps, a·gap^(a-1); 1 makes all gaps equally likely."""

    def __post_init__(self) -> None:
        if self.length % 2:
            raise ValueError(f"length = {self.length} is odd: choose an even number")
        if 4 * self.pairs > self.length:
            raise ValueError(
                f"pairs = {self.pairs} and their queries need a length of {4 * self.pairs}, "
                f"not {self.length}: ask for fewer pairs, or longer rows"
            )
        if self.pairs >= self.vocabulary // 2:
            raise ValueError(
                f"pairs = {self.pairs} need as many keys, and vocabulary = {self.vocabulary} has "
                f"{self.vocabulary // 2 - 1}: choose a larger vocabulary"
            )


class CopyConfig(TokensConfig, frozen=True, tag_field="kind", tag="copy"):
    """Tokens → the same tokens."""


class SelectiveCopyConfig(TokensConfig, frozen=True, tag_field="kind", tag="selective-copy"):
    """Tokens scattered among noise → the tokens in their order."""

    noise: Count = 16
    """Places of noise among the tokens."""


class InductionConfig(Config, frozen=True, tag_field="kind", tag="induction"):
    """… A B … A → B."""

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 and 1 don't occur."""
    length: Annotated[int, Meta(ge=3)] = 32
    """Ids of a row."""


class SortConfig(TokensConfig, frozen=True, tag_field="kind", tag="sort"):
    """Tokens → the same tokens, the lowest id first."""


class ReverseConfig(TokensConfig, frozen=True, tag_field="kind", tag="reverse"):
    """Tokens → the same tokens, the last first."""


ProbeConfig: TypeAlias = (
    MqarConfig | CopyConfig | SelectiveCopyConfig | InductionConfig | SortConfig | ReverseConfig
)
TextTask: TypeAlias = (
    CasingConfig
    | SummariesConfig
    | TranslationConfig
    | ClassificationConfig
    | TaggingConfig
    | EntailmentConfig
    | RetrievalConfig
)
TaskConfig: TypeAlias = TextTask | ProbeConfig
