"""Models of Hugging Face, looked at while they read a text."""

import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.explorer.gradients import Gradient
from regard.explorer.hugging_face_files import (
    cached_folder,
    own_folder,
    quiet,
    read_model,
    read_tokenizer,
    require_transformers,
)
from regard.explorer.hugging_face_tokens import around, ordinary, shown
from regard.explorer.maps import Map
from regard.explorer.texts import WRITTEN, require_room, require_text

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
        own = own_folder(name)
        folder = own or cached_folder(str(name), download=download)
        model = read_model(folder, device=torch.device(device))
        return HuggingFaceModel(own.name if own else str(name), model, read_tokenizer(folder))

    def untrained(self, seed: int = 0) -> "HuggingFaceModel":
        """The same model before its training: its configuration, initialised anew."""
        kind: Any = type(self.model)
        with torch.random.fork_rng(devices=[]), quiet():
            torch.default_generator.manual_seed(seed)
            fresh = kind(deepcopy(self.model.config))
        fresh = fresh.to(device=self.model.device, dtype=self.model.dtype).eval()
        return replace(self, name=f"{self.name}, untrained", model=fresh)

    @property
    def block(self) -> int | None:
        """How many tokens it can read at once, where there is a limit."""
        most = getattr(self.model.config, "max_position_embeddings", None)
        return None if most is None else min(most, self.tokenizer.model_max_length)

    @property
    def room(self) -> int | None:
        """The most tokens of a text, beside those that its tokenizer puts around each."""
        before, after = around(self.tokenizer)
        return None if self.block is None else self.block - len(before) - len(after)

    @property
    def ordinary(self) -> Sequence[int]:
        """The ids of all tokens but the special ones."""
        table: Any = self.model.get_input_embeddings()
        return ordinary(self.tokenizer, len(table.weight))

    def show(self, ids: Tensor) -> list[str]:
        """Tokens as a reader sees them, special ones too; the space before a word is kept."""
        return shown(self.tokenizer, ids.tolist())

    def read(self, text: str, second: str | None = None) -> tuple[Map, ...]:
        """What its layers do with a text, or with two.

        To an encoder–decoder `second` is what it writes about the text, and what it would write
        itself where that is missing; to others, a second sentence.

        Raises:
            UserError: a text is empty, can't be encoded or is too long, or the model has no
                attention.
        """
        require_text(text, second)
        with quiet():
            inputs, starts = self._inputs(text, second)
            return self._maps(self._body, inputs, starts)

    def read_ids(self, ids: Sequence[int]) -> tuple[Map, int]:
        """What it does with tokens, or its encoder, and behind how many others they begin.

        Raises:
            UserError: the model has no attention.
        """
        before, after = around(self.tokenizer)
        row = torch.tensor([[*before, *ids, *after]], device=self.model.device)
        body: Any = self._body
        reader = body.get_encoder() if self._writes else body
        with quiet():
            inputs = {"input_ids": row, "attention_mask": torch.ones_like(row)}
            return self._maps(reader, inputs)[0], len(before)

    def gradients(self, text: str) -> list[Gradient]:
        """How its loss on a text depends on each weight of its first stack, layer by layer.

        Raises:
            UserError: the text can't be read, or has no loss.
        """
        from regard.explorer.hugging_face_gradients import hugging_face_gradients
        from regard.explorer.hugging_face_maps import kind_of

        require_text(text)
        with quiet():
            inputs, _ = self._inputs(text)
            special = torch.tensor(self.tokenizer.all_special_ids, device=self.model.device)
            special = torch.isin(inputs["input_ids"][0], special)
            found = hugging_face_gradients(self.model, special, **inputs)
        kinds = [kind_of(one.layer, self._writes) for one in found]
        return [one for one, kind in zip(found, kinds, strict=True) if kind == kinds[0]]

    @property
    def _body(self) -> "PreTrainedModel":
        """The model without the head that it may have."""
        model: Any = self.model
        body: PreTrainedModel = model.base_model
        return body

    @property
    def _writes(self) -> bool:
        """Whether it reads a source and writes a target."""
        return bool(self.model.config.is_encoder_decoder)

    def _inputs(self, text: str, second: str | None = None) -> tuple[dict[str, Tensor], int | None]:
        """What the model takes, and where the second of two texts begins."""
        if not self._writes:
            return self._encode(text, second, "the text")
        source, _ = self._encode(text, None, "the text")
        target = self._written(source) if second is None else self._shifted(second)
        return source | {"decoder_input_ids": target}, None

    def _maps(
        self, reader: "PreTrainedModel", inputs: dict[str, Tensor], starts: int | None = None
    ) -> tuple[Map, ...]:
        from regard.explorer.hugging_face_maps import hugging_face_maps

        source, target = self.show(inputs["input_ids"][0]), inputs.get("decoder_input_ids")
        written = [] if target is None else self.show(target[0])
        maps = hugging_face_maps(reader, inputs, source, written, starts)
        if not maps:
            raise UserError(f"hf:{self.name}: this model has no attention to look at")
        return maps

    def _encode(
        self, text: str, second: str | None, what: str
    ) -> tuple[dict[str, Tensor], int | None]:
        """What the model takes, and where the second text begins."""
        try:
            encoded = self.tokenizer(text, second, return_tensors="pt")
        except (TypeError, UnicodeError):  # lone surrogates, from bytes that aren't UTF-8
            raise UserError(f"{what} isn't valid Unicode") from None
        self._require(encoded["input_ids"], what)
        taken = inspect.signature(self._body.forward).parameters
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
