"""Tokenizers and objectives, as data. Knows no torch."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from regard.config import Config, Fraction

Words = Annotated[int, Meta(ge=0, le=100)]


class CharactersConfig(Config, frozen=True, tag_field="kind", tag="characters"):
    """Every character is a token."""

    newline: bool = False
    """Whether the line end is one too, though documents that are lines have none."""


class WordsConfig(Config, frozen=True, tag_field="kind", tag="words"):
    """Every word and punctuation mark is a token."""


class BytePairsConfig(Config, frozen=True, tag_field="kind", tag="byte-pairs"):
    """Frequent byte sequences are tokens; any text can be written with them."""

    size: Annotated[int, Meta(ge=300)] = 2048
    """Number of tokens."""


class HuggingFaceConfig(Config, frozen=True, tag_field="kind", tag="hugging-face"):
    """The tokens of an imported model; they come with it and aren't learned from a text."""


TokenizerConfig: TypeAlias = CharactersConfig | WordsConfig | BytePairsConfig | HuggingFaceConfig


class ObjectiveConfig(Config, frozen=True):
    """What pretraining predicts: the share of batches of each kind."""

    next_token: Fraction = 1.0
    """Documents, each token from those before."""
    span_corruption: Fraction = 0.0
    """Documents with a span cut out, which follows at the end: prefix ⁇ suffix ⁇ span."""
    masked_tokens: Fraction = 0.0
    """Documents with tokens masked, to be told from both sides (BERT); for an encoder."""
    masked_autoencoding: Fraction = 0.0
    """Documents with tokens hidden behind ⁇, to be told from both sides; for an encoder."""
    masking: Annotated[float, Meta(gt=0, le=1)] = 0.15
    """Share of a document's tokens that is masked or hidden."""
    clozes: Fraction = 0.0
    """What the documents say, asked piece by piece in their own words."""
    cloze_words: tuple[Words, Words] = (0, 4)
    """Fewest and most words on its left that a cloze shows, drawn each time."""
    questions: Fraction = 0.0
    """Questions with answers; needs --questions."""
    question_batch: Annotated[int, Meta(ge=1)] | None = None
    """Questions, or clozes, of a step; as many as the batch has documents if not given."""

    def __post_init__(self) -> None:
        if not self.total:
            raise ValueError("all shares are 0: give one of them a share above 0")
        if self.cloze_words[0] > self.cloze_words[1]:
            raise ValueError("cloze_words: give the fewest first, then the most")

    @property
    def total(self) -> float:
        """Sum of all shares."""
        return self.from_the_left + self.from_both_sides

    @property
    def from_the_left(self) -> float:
        """Shares of what predicts each token from those before."""
        return self.next_token + self.span_corruption + self.clozes + self.questions

    @property
    def from_both_sides(self) -> float:
        """Shares of what an encoder predicts."""
        return self.masked_tokens + self.masked_autoencoding
