"""Tokenizers, as data. Knows no torch."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from regard.config import Config


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
