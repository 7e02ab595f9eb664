"""What a tokenizer of Hugging Face has, and how its tokens are shown."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def shown(tokenizer: "PreTrainedTokenizerBase", ids: Iterable[int]) -> list[str]:
    """Tokens as a reader sees them, special ones too; the space before a word is kept."""
    return [_text_of(tokenizer, piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]


def ordinary(tokenizer: "PreTrainedTokenizerBase", rows: int) -> list[int]:
    """The ids of all tokens but the special ones, as far as a model has a row for them."""
    added = tokenizer.added_tokens_decoder.items()
    special = {*tokenizer.all_special_ids, *(i for i, token in added if token.special)}
    return sorted(i for i in {*tokenizer.get_vocab().values()} - special if i < rows)


def around(tokenizer: "PreTrainedTokenizerBase") -> tuple[list[int], list[int]]:
    """The ids that a tokenizer puts before and after each text."""
    whole: list[int] = tokenizer("a")["input_ids"]
    text: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
    ends = range(len(text), len(whole) + 1)
    end = next(end for end in ends if whole[end - len(text) : end] == text)
    return whole[: end - len(text)], whole[end:]


def _text_of(tokenizer: "PreTrainedTokenizerBase", piece: str) -> str:
    """Byte pairs as text; a part of a character stays as the vocabulary writes it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or "ByteLevel" not in str(backend.decoder):
        return piece.replace("▁", " ")  # the space of SentencePiece
    from tokenizers.decoders import ByteLevel

    text = str(ByteLevel().decode([piece]))
    return piece if "\ufffd" in text else text
