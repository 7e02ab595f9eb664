"""Attention maps of a Hugging Face model, with its output projections and positions.

Projections are found from the data flow, not by module names. The output projection is the only
linear layer whose input is the concatenated outputs of all heads; if these are scaled, normalized
or gated first, or read by several modules, none is found. Position vectors are consecutive rows of
a position table. Cosines and sines count as rotary positions only if rotating some module's output
by them gives a layer's queries. Biases on scores are part of a record. Other kinds of positions
aren't shown.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from regard.explorer.attention_maps import AttentionMap, PositionInfo, gather_maps
from regard.explorer.huggingface.intercept import intercept_huggingface
from regard.explorer.huggingface.recurrences import recurrent_layers
from regard.explorer.intercept import AttentionRecord
from regard.positions import rotate

Rotation: TypeAlias = tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]
"""Cosines and signed sines, as `regard.positions.rotate` takes them."""
_TABLE = re.compile(r"(^|\.)(wpe|[^.]*pos[^.]*)$")
"""Names of position tables in transformers: wpe, position_embeddings, embed_positions."""


@torch.inference_mode()
def huggingface_maps(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    source: Sequence[str],
    target: Sequence[str] = (),
    second: int | None = None,
) -> tuple[AttentionMap, ...]:
    """Return the attention of a model to one row, by kind, in order of first appearance.

    `target` is empty if the model reads one text.

    Raises:
        MismatchError: weights · values isn't the output of the kernel.
        UserError: the model's attention can't be replaced by name.
    """
    embeddings: Any = model.get_input_embeddings()
    seen = Observed(width=embeddings.weight.shape[1])
    with intercept_huggingface(model, seen.record), ExitStack() as hooks:
        for path, module in model.named_modules():
            hook = module.register_forward_hook(partial(seen.observe, path))
            hooks.callback(hook.remove)
        model(**inputs)
    maps, kind = [], partial(kind_of, recurrent=recurrent_layers(model))
    for one in gather_maps(seen.records, source, target, second, kind):
        found = [layer.record for layer in one.layers]
        layers = [replace(x, projection=seen.projection(x.record)) for x in one.layers]
        tables = [path for path in seen.vectors if kind(path, bool(target)) == one.name]
        info = seen.positions(found, tables)
        maps.append(replace(one, layers=tuple(layers), position_info=info))
    return tuple(maps)


def kind_of(path: str, has_target: bool, *, recurrent: Collection[str]) -> str:
    """Return the kind of attention of a layer or a position table, by transformers' names.

    `recurrent` are the paths of recurrent layers.
    """
    if path in recurrent:
        return "recurrence"
    if not has_target:
        return "self-attention"
    if re.search(r"cross|encdec|encoder_attn", path, re.IGNORECASE):
        return "decoder to source"
    outermost = re.search(r"\b(encoder|decoder)\b", path)
    return outermost[1] if outermost else "decoder"


@dataclass
class Observed:
    """Attention, output projections and positions, recorded while a model reads a row."""

    width: int
    """Width of the embeddings."""
    records: list[AttentionRecord] = field(default_factory=list)
    readers: dict[AttentionRecord, list[Tensor]] = field(default_factory=dict)
    """Weight matrices of the linear layers that read the output of each record."""
    vectors: dict[str, Float[Tensor, "n d"]] = field(default_factory=dict)
    """Path of a position table → the rows used."""
    rotations: list[Rotation] = field(default_factory=list)
    rotated: dict[AttentionRecord, Rotation] = field(default_factory=dict)
    """The rotation of each layer's queries."""
    outputs: list[Tensor] = field(default_factory=list)
    """Outputs of modules since the last record, if there are rotations."""

    def record(self, one: AttentionRecord) -> Tensor:
        """Keep a layer's attention, with the rotation of its queries; return its output."""
        self.records.append(one)
        for rotation in self.rotations:
            if any(_rotates(rotation, x, one.query) for x in reversed(self.outputs)):
                self.rotated[one] = rotation
        self.outputs.clear()
        return one.out

    def observe(self, path: str, module: nn.Module, inputs: tuple[Any, ...], out: Any) -> None:
        """Record a forward pass of a module, as a hook."""
        matrix = _matrix(module)
        if self.records and inputs and matrix is not None and _reads(inputs[0], self.records[-1]):
            self.readers.setdefault(self.records[-1], []).append(matrix)
        if isinstance(module, nn.Embedding) and _TABLE.search(path):
            rows = out.detach().reshape(-1, out.shape[-1])
            if rows.shape[1] == self.width and _consecutive(rows, module.weight):
                self.vectors[path] = rows
        elif "rotary" in type(module).__name__.lower() and isinstance(out, tuple):
            rotation = _rotation(*out)
            if rotation and not any(all(map(torch.equal, rotation, x)) for x in self.rotations):
                self.rotations.append(rotation)
        elif self.rotations and isinstance(out, Tensor):
            self.outputs.append(out)

    def projection(self, one: AttentionRecord) -> Float[Tensor, "d_model heads_e"] | None:
        """Return the matrix that reads the output of a layer's heads; None unless there is one."""
        found = self.readers.get(one, [])
        return found[0] if len(found) == 1 else None

    def positions(
        self, layers: Collection[AttentionRecord], tables: Collection[str]
    ) -> PositionInfo:
        """Return the positions of these layers, with vectors from these tables only."""
        vectors = [rows for path, rows in self.vectors.items() if path in tables]
        first, *others = [self.rotated.get(layer) for layer in layers]
        return PositionInfo(
            vectors[0] if len(vectors) == 1 else None,
            first if all(other is first for other in others) else None,
        )


def _matrix(module: nn.Module) -> Tensor | None:
    """Return the weight of a linear layer; None for other modules."""
    if type(module) is nn.Linear:
        return module.weight.detach()
    if type(module) is Conv1D:  # GPT-2's linear layer, transposed
        return module.weight.detach().mT
    return None


def _reads(x: object, record: AttentionRecord) -> bool:
    """Return whether an input is the concatenated outputs of all heads."""
    if not isinstance(x, Tensor) or x.numel() != record.out.numel():
        return False
    heads_e = record.out.shape[1] * record.out.shape[3]
    gathered = record.out.transpose(1, 2).flatten(2)
    return x.shape[-1] == heads_e and x.reshape(gathered.shape).equal(gathered)


def _consecutive(rows: Float[Tensor, "n d"], table: Float[Tensor, "most d"]) -> bool:
    """Return whether rows are consecutive in a table, starting anywhere."""
    starts = (table == rows[0]).all(-1).nonzero().flatten().tolist()
    return any(table[start : start + len(rows)].equal(rows) for start in starts)


def _rotation(*parts: Any) -> Rotation | None:
    """Return the cosines and sines of a row's angles; None if they are scaled.

    Dimension i is paired with i + d/2; `_rotates` is False for models that pair neighbors.
    """
    if len(parts) != 2 or any(not isinstance(x, Tensor) or x.ndim != 3 for x in parts):
        return None
    cos, sin = (part[0].detach() for part in parts)
    rounding = 8 * torch.finfo(cos.dtype).eps
    if not (cos.double().square() + sin.double().square() - 1).abs().max() <= rounding:
        return None
    half = cos.shape[1] // 2
    return cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)


def _rotates(rotation: Rotation, x: Tensor, query: Float[Tensor, "1 heads n d"]) -> bool:
    """Return whether rotating a module's output, or its first part, gives the queries."""
    _, heads, n, d = query.shape
    if rotation[0].shape != (n, d) or x.ndim < 3 or x.shape[:2] != (1, n):
        return False
    before = x.detach().flatten(2)[..., : heads * d].double()
    if before.shape[2] < heads * d:
        return False
    before = before.unflatten(2, (heads, d)).transpose(1, 2)
    cos, signed_sin = (part.double()[None, None] for part in rotation)
    error = (rotate(before, (cos, signed_sin)) - query.double()).abs().max()
    return bool(error <= 4 * torch.finfo(query.dtype).eps * before.abs().max())
