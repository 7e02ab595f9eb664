"""Configuration of the heads of models. Imports no torch."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from regard.config import Config, Count
from regard.errors import UserError
from regard.models.config import ModelConfig

Pool = Literal["first", "mean", "last"]
"""Pooling of the hidden states of a text: the first, the mean of all, or the last."""


class LMHeadConfig(Config, frozen=True, tag_field="kind", tag="lm"):
    """Logits of the next token."""


class MaskedLMHeadConfig(Config, frozen=True, tag_field="kind", tag="masked-lm"):
    """Logits of masked tokens, from an extra layer (Devlin et al., 2019)."""


class ClassificationHeadConfig(Config, frozen=True, tag_field="kind", tag="classification"):
    """Logits of the label of a text."""

    pool: Pool = "mean"
    """Pooling of hidden states; a causal body uses its last state."""
    labels: tuple[str, ...] = ()
    """The labels. Default: those of the training data."""


class TokenClassificationHeadConfig(
    Config, frozen=True, tag_field="kind", tag="token-classification"
):
    """Logits of the label of each token."""

    labels: tuple[str, ...] = ()
    """The labels. Default: those of the training data."""


class EmbeddingHeadConfig(Config, frozen=True, tag_field="kind", tag="embedding"):
    """A vector of length 1 per text, close to the vectors of matching texts."""

    pool: Pool = "mean"
    """Pooling of hidden states."""
    width: Count = 128
    """Width of the projection of the pooled hidden states. 0: no projection."""
    temperature: Annotated[float, Meta(gt=0)] = 0.05
    """Divides similarities in training."""


class ReconstructionHeadConfig(Config, frozen=True, tag_field="kind", tag="reconstruction"):
    """Logits of all tokens of a row, from the hidden state of its last one (Poli et al., 2024)."""


HeadConfig: TypeAlias = (
    LMHeadConfig
    | MaskedLMHeadConfig
    | ClassificationHeadConfig
    | TokenClassificationHeadConfig
    | EmbeddingHeadConfig
    | ReconstructionHeadConfig
)


HEADS = {
    "decoder": ("lm", "classification", "token-classification", "embedding", "reconstruction"),
    "perceiver": ("lm",),
    "encoder": ("masked-lm", "classification", "token-classification", "embedding"),
    "encoder-decoder": ("lm",),
    "rnn": ("lm", "classification", "token-classification", "embedding", "reconstruction"),
    "rnn-encoder-decoder": ("lm",),
    "fixed-window": ("lm",),
}
"""The heads that fit each family."""


def require_head(config: ModelConfig, head: HeadConfig) -> None:
    """Raise unless a head fits the family of a model.

    Raises:
        UserError: names the heads that fit the family, and the families that the head fits.
    """
    if _kind(head) not in HEADS[_kind(config)]:
        raise unfit_head(config, head)


def _kind(config: ModelConfig | HeadConfig) -> str:
    return str(config.__struct_config__.tag)


def unfit_head(config: ModelConfig, head: HeadConfig) -> UserError:
    """Return the error for a head that does not fit the family of a model."""
    family, kind = _kind(config), _kind(head)
    fitting = [name for name, heads in HEADS.items() if kind in heads]
    return UserError(
        f"head.kind={kind}: is no head for model.kind={family}, which takes "
        f"{' or '.join(HEADS[family])}; {kind} fits {' or '.join(fitting)}"
    )


def with_labels(head: HeadConfig, labels: tuple[str, ...]) -> HeadConfig:
    """Return a head with other labels, if it is a head with labels."""
    if isinstance(head, ClassificationHeadConfig | TokenClassificationHeadConfig):
        return replace(head, labels=labels)
    return head


def require_labels(labels: Sequence[str]) -> None:
    """Raise unless there are two labels or more, and each once.

    Raises:
        UserError: says what to set instead.
    """
    counts = Counter(labels)
    if len(counts) < 2:
        alone = f", not {labels[0]!r} alone" if labels else ""
        raise UserError(
            f"head.labels: needs at least two labels{alone}: list them, or train on examples that "
            "have (`regard train classification FILE`)"
        )
    label, times = counts.most_common(1)[0]
    if times > 1:
        raise UserError(f"head.labels: lists {label!r} {times} times; write each label once")
