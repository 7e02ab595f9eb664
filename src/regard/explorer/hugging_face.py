"""Models of Hugging Face, looked at while they read a text."""

import inspect
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.explorer.capture import Captured
from regard.explorer.hugging_face_files import (
    cached_folder,
    quiet,
    read_model,
    read_tokenizer,
    require_transformers,
)
from regard.explorer.look import WRITTEN, require_room
from regard.explorer.maps import Map, make_map

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class HuggingFaceModel:
    """A model of Hugging Face with its tokenizer; `regard.look` takes it as it takes a run."""

    name: str
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"

    @staticmethod
    def load(
        name: str | Path, *, device: torch.device | str = "cpu", download: bool = False
    ) -> "HuggingFaceModel":
        """The model in a folder, or of that name in the local cache, which `download` may fill.

        Raises:
            UserError: there is none, or it can't be read.
        """
        require_transformers()
        place = Path(name).expanduser()
        is_folder = str(name) != "" and place.is_dir()
        folder = place if is_folder else cached_folder(str(name), download=download)
        model = read_model(folder, device=torch.device(device))
        shown = place.absolute().name if is_folder else str(name)
        return HuggingFaceModel(shown, model, read_tokenizer(folder))

    def untrained(self, seed: int = 0) -> "HuggingFaceModel":
        """The same model before its training: its configuration, initialised anew."""
        kind: Any = type(self.model)
        with torch.random.fork_rng(devices=[]), quiet():
            torch.default_generator.manual_seed(seed)
            fresh = kind(deepcopy(self.model.config))
        fresh = fresh.to(device=self.model.device, dtype=self.model.dtype).eval()
        return replace(self, name=f"{self.name}, untrained", model=fresh)

    def read(self, text: str, second: str | None = None) -> tuple[Map, ...]:
        """What its layers do with a text, or with two.

        To an encoder–decoder `second` is what it writes about the text, and what it would write
        itself where that is missing; to others, a second sentence.

        Raises:
            UserError: a text can't be encoded or is too long, or the model has no attention.
        """
        with quiet():
            if self.model.config.is_encoder_decoder:
                return self._read_pair(text, second)
            return self._read_sequence(text, second)

    @property
    def block(self) -> int | None:
        """How many tokens it can read at once, where there is a limit."""
        most = getattr(self.model.config, "max_position_embeddings", None)
        return None if most is None else min(most, self.tokenizer.model_max_length)

    def show(self, ids: Tensor) -> list[str]:
        """Tokens as a reader sees them, special ones too; the space before a word is kept."""
        pieces = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        return [self._text_of(piece) for piece in pieces]

    def _text_of(self, piece: str) -> str:
        """Byte pairs as text; a part of a character stays as the vocabulary writes it."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or "ByteLevel" not in str(backend.decoder):
            return piece.replace("▁", " ")  # the space of SentencePiece
        from tokenizers.decoders import ByteLevel

        text = str(ByteLevel().decode([piece]))
        return piece if "\ufffd" in text else text

    def _read_sequence(self, text: str, second: str | None) -> tuple[Map, ...]:
        inputs, starts = self._encode(text, second, "the text")
        captured = self._capture(**inputs)
        tokens = self.show(inputs["input_ids"][0])
        return (make_map("self-attention", captured, tokens, second=starts),)

    def _read_pair(self, text: str, second: str | None) -> tuple[Map, ...]:
        source, _ = self._encode(text, None, "the text")
        target = self._written(source) if second is None else self._shifted(second)
        captured = self._capture(**source, decoder_input_ids=target)
        kinds: dict[str, list[Captured]] = {}
        for one in captured:
            kinds.setdefault(_kind(one.layer), []).append(one)
        texts = self.show(source["input_ids"][0]), self.show(target[0])
        return tuple(make_map(kind, found, *texts) for kind, found in kinds.items())

    def _encode(
        self, text: str, second: str | None, what: str
    ) -> tuple[dict[str, Tensor], int | None]:
        """What the model takes, and where the second text begins."""
        try:
            encoded = self.tokenizer(text, second, return_tensors="pt")
        except (TypeError, UnicodeError):  # lone surrogates, from bytes that aren't UTF-8
            raise UserError(f"{what} isn't valid Unicode") from None
        self._require(encoded["input_ids"], what)
        taken = inspect.signature(self.model.forward).parameters
        inputs = {k: v.to(self.model.device) for k, v in encoded.items() if k in taken}
        if second is None or not self.tokenizer.is_fast:
            return inputs, None
        texts = encoded.sequence_ids(0)
        return inputs, texts.index(1) if 1 in texts else None

    def _require(self, ids: Tensor, what: str) -> None:
        if not ids.numel():
            raise UserError(f"{what} holds nothing that the model has a token for")
        if self.block is not None:
            require_room(ids[0].tolist(), self.block, what)

    def _written(self, source: Mapping[str, Tensor]) -> Tensor:
        """What the model writes about a source, the most probable token each time."""
        model: Any = self.model
        most = min(WRITTEN, (self.block or WRITTEN + 1) - 1)
        ids: Tensor = model.generate(
            **source, max_new_tokens=most, min_length=0, do_sample=False, num_beams=1
        )
        return ids[:, :-1] if ids[0, -1] == self.tokenizer.eos_token_id else ids

    def _shifted(self, target: str) -> Tensor:
        """A target as the decoder reads it: behind the token that begins each text."""
        model: Any = self.model
        labels = self.tokenizer(text_target=target, return_tensors="pt")["input_ids"]
        self._require(labels, "the second text")
        ids: Tensor = model.prepare_decoder_input_ids_from_labels(labels=labels.to(model.device))
        return ids

    def _capture(self, **inputs: Tensor) -> Sequence[Captured]:
        from regard.explorer.hugging_face_capture import capture_hugging_face

        captured = capture_hugging_face(self.model, **inputs)
        if not captured:
            raise UserError(f"hf:{self.name}: this model has no attention to look at")
        return captured


def _kind(layer: str) -> str:
    """What a layer of an encoder–decoder looks at, by the names that transformers has for it."""
    if re.search(r"cross|encdec|encoder_attn", layer, re.IGNORECASE):
        return "decoder to source"
    outermost = re.search(r"\b(encoder|decoder)\b", layer)
    return outermost[1] if outermost else "decoder"
