"""Configuration of tokenizers."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from regard.config import Config

MOST_TOKENS = 2**24
"""Largest size of a vocabulary, in tokens."""

Unknown = Literal["error", "unk"]
ByteFallback = Literal["error", "unk", "bytes"]


class SpecialTokensConfig(Config, frozen=True):
    """Names of the special tokens by role; roles may share a token, and "" leaves a role out.

    By default, one token begins, ends and separates texts, and is also the mask.

    A name that occurs in the corpus as ordinary text is put in angle brackets.
    """

    pad: Annotated[str, Meta(min_length=1)] = "<pad>"
    """Pads rows."""
    bos: str = "<sep>"
    """Begins a text."""
    eos: str = "<sep>"
    """Ends a text."""
    sep: str = "<sep>"
    """Separates two texts."""
    cls: str = ""
    """Begins a text that is classified."""
    mask: str = "<sep>"
    """Replaces a masked token."""
    unk: str = ""
    """Replaces unknown text; <unknown> where a tokenizer needs one and this is empty."""


class TrainedConfig(Config, frozen=True):
    """Base of tokenizers that are trained on a text."""

    special_tokens: SpecialTokensConfig = SpecialTokensConfig()
    """The special tokens, which come first in the vocabulary."""


class CharactersConfig(TrainedConfig, frozen=True, tag_field="kind", tag="characters"):
    """Every character is a token."""

    unknown: ByteFallback = "error"
    """Treatment of unknown characters: an error, the unk token, or a token per UTF-8 byte."""
    newline: bool = False
    """Whether the line end is a token even if no document contains it, as when they are lines."""


class WordsConfig(TrainedConfig, frozen=True, tag_field="kind", tag="words"):
    """Every word and punctuation mark is a token."""

    unknown: Unknown = "error"
    """Treatment of unknown words: an error, or the unk token."""


class BytePairsConfig(TrainedConfig, frozen=True, tag_field="kind", tag="byte-pairs"):
    """Frequent byte sequences are tokens; any text can be written with them."""

    size: Annotated[int, Meta(ge=300, le=MOST_TOKENS)] = 2048
    """Number of tokens."""


class HuggingFaceConfig(Config, frozen=True, tag_field="kind", tag="hugging-face"):
    """The tokenizer of an imported model; not trained on a text."""

    unknown: Unknown = "unk"
    """Treatment of unknown text: the unk token, where the tokenizer has one, or an error."""
    vocab_size: Annotated[int, Meta(ge=1, le=MOST_TOKENS)] | None = None
    """Rows of the model's embedding. Default: the number of tokens."""


TokenizerConfig: TypeAlias = CharactersConfig | WordsConfig | BytePairsConfig | HuggingFaceConfig
