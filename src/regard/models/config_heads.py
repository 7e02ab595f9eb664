"""What a model gives beside the hidden states of its body, as data: a class for each head."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from regard.models.config_base import Config, Positive

Pool = Literal["first", "mean", "last"]
"""Which hidden states stand for a whole text: the first, the mean of all, or the last."""


class LanguageConfig(Config, frozen=True, tag_field="kind", tag="language"):
    """Scores for the next token."""


class MaskedLanguageConfig(Config, frozen=True, tag_field="kind", tag="masked-language"):
    """Scores for the tokens that are masked, by a layer of their own (Devlin et al., 2019)."""


class ClassesConfig(Config, frozen=True, tag_field="kind", tag="classes"):
    """Scores for the label of a whole text."""

    pool: Pool = "mean"
    """Which hidden states stand for the text; a decoder's are told by its last."""
    labels: tuple[str, ...] = ()
    """The labels; those of the training data if not given."""


class TokenClassesConfig(Config, frozen=True, tag_field="kind", tag="token-classes"):
    """Scores for a label of each token."""

    labels: tuple[str, ...] = ()
    """The labels; those of the training data if not given."""


class EmbeddingConfig(Config, frozen=True, tag_field="kind", tag="embedding"):
    """A vector of length 1 for a whole text, near those of texts that belong to it."""

    pool: Pool = "mean"
    """Which hidden states stand for the text."""
    width: Positive = 128
    """Width of the vector."""
    temperature: Annotated[float, Meta(gt=0)] = 0.05
    """What similarities are divided by in training."""


HeadConfig: TypeAlias = (
    LanguageConfig | MaskedLanguageConfig | ClassesConfig | TokenClassesConfig | EmbeddingConfig
)
