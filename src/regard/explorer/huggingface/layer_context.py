"""Attention maps of a Hugging Face model, with its output projections and positions.

No names of a model's modules are assumed. The output projection is the one linear layer that reads
the outputs of all heads, concatenated; if they are scaled, normalized or gated first, or read by
several modules, none is found. Position vectors are consecutive rows of a position table. Cosines
and sines count as rotary positions only where rotating some module's output by them gives a layer's
queries. Biases on scores are part of a record. Other kinds of positions aren't shown.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from regard.explorer.intercept import AttentionRecord, recorded
from regard.positions import rotate

Readers: TypeAlias = Mapping[AttentionRecord, list[Tensor]]
"""For each record, the matrices that read its output."""
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

    `target` is empty where a model reads one text.

    Raises:
        MismatchError: weights · values isn't the output of the kernel.
        UserError: the model's attention can't be replaced by name.
    """
    with (
        recorded(partial(intercept_huggingface, model)) as records,
        output_readers(model, records) as readers,
        observed_positions(model, records) as positions,
    ):
        model(**inputs)
    matrices = {record: found[0] for record, found in readers.items() if len(found) == 1}
    maps = []
    for one in gather_maps(records, source, target, second, kind_of):
        found = [layer.record for layer in one.layers]
        layers = [replace(x, projection=matrices.get(x.record)) for x in one.layers]
        tables = [path for path in positions.vectors if kind_of(path, bool(target)) == one.name]
        info = positions.info(found, tables)
        maps.append(replace(one, layers=tuple(layers), position_info=info))
    return tuple(maps)


def kind_of(path: str, has_target: bool) -> str:
    """Return the kind of attention of a layer or a position table, by transformers' names."""
    if not has_target:
        return "self-attention"
    if re.search(r"cross|encdec|encoder_attn", path, re.IGNORECASE):
        return "decoder to source"
    outermost = re.search(r"\b(encoder|decoder)\b", path)
    return outermost[1] if outermost else "decoder"


@contextmanager
def output_readers(model: nn.Module, records: list[AttentionRecord]) -> Iterator[Readers]:
    """Find the matrices that read the output of each record of the with block."""
    readers: dict[AttentionRecord, list[Tensor]] = {}

    def hook(_: str, module: nn.Module, args: tuple[Any, ...], __: Any) -> None:
        matrix = _matrix(module)
        if records and args and matrix is not None and _reads(args[0], records[-1]):
            readers.setdefault(records[-1], []).append(matrix)

    with _hooked(model, hook):
        yield readers


@contextmanager
def _hooked(model: nn.Module, hook: Callable[..., None]) -> Iterator[None]:
    """Call (path, module, inputs, output) after each module's forward pass in the with block."""
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_hook(partial(hook, name)).remove)
        yield


def _matrix(module: nn.Module) -> Tensor | None:
    """The weight of a linear layer."""
    if type(module) is nn.Linear:
        return module.weight.detach()
    if type(module) is Conv1D:  # GPT-2's linear layer, transposed
        return module.weight.detach().mT
    return None


def _reads(x: object, record: AttentionRecord) -> bool:
    """Whether an input is the outputs of all heads, concatenated."""
    if not isinstance(x, Tensor) or x.numel() != record.out.numel():
        return False
    heads_e = record.out.shape[1] * record.out.shape[3]
    gathered = record.out.transpose(1, 2).flatten(2)
    return x.shape[-1] == heads_e and x.reshape(gathered.shape).equal(gathered)


@dataclass
class ObservedPositions:
    """Positions seen while a model reads a row."""

    records: list[AttentionRecord]
    vectors: dict[str, Float[Tensor, "n d"]] = field(default_factory=dict)
    """By the path of the table."""
    rotations: list[Rotation] = field(default_factory=list)
    rotated: dict[AttentionRecord, Rotation] = field(default_factory=dict)
    """The rotation of each layer's queries."""
    outputs: list[Tensor] = field(default_factory=list)
    """Outputs of modules since the last record, if there are rotations."""
    compared: int = 0
    """Number of records already compared with them."""

    def info(self, layers: Collection[AttentionRecord], tables: Collection[str]) -> PositionInfo:
        """Return the positions of these layers, with vectors from these tables only."""
        vectors = [rows for path, rows in self.vectors.items() if path in tables]
        first, *others = [self.rotated.get(layer) for layer in layers]
        return PositionInfo(
            vectors[0] if len(vectors) == 1 else None,
            first if all(other is first for other in others) else None,
        )

    def compare(self) -> None:
        """Check whether the queries of the last record were rotated."""
        for one in self.records[self.compared :]:
            for rotation in self.rotations:
                if any(_rotates(rotation, x, one.query) for x in self.outputs):
                    self.rotated[one] = rotation
            self.outputs.clear()
        self.compared = len(self.records)


@contextmanager
def observed_positions(
    model: PreTrainedModel, records: list[AttentionRecord]
) -> Iterator[ObservedPositions]:
    """Observe the positions of a model in the with block, while its attention is recorded."""
    seen = ObservedPositions(records)
    tokens: Any = model.get_input_embeddings()
    width = tokens.weight.shape[1]

    def hook(name: str, module: nn.Module, _: tuple[Any, ...], out: Any) -> None:
        seen.compare()
        if isinstance(module, nn.Embedding) and _TABLE.search(name):
            rows = out.detach().reshape(-1, out.shape[-1])
            if rows.shape[1] == width and _consecutive(rows, module.weight):
                seen.vectors[name] = rows
        elif "rotary" in type(module).__name__.lower() and isinstance(out, tuple):
            rotation = _rotation(*out)
            if rotation and not any(all(map(torch.equal, rotation, x)) for x in seen.rotations):
                seen.rotations.append(rotation)
        elif seen.rotations and isinstance(out, Tensor):
            seen.outputs.append(out)

    with _hooked(model, hook):
        yield seen
        seen.compare()


def _consecutive(rows: Float[Tensor, "n d"], table: Float[Tensor, "most d"]) -> bool:
    """Whether rows are consecutive in a table, which may begin with unused ones."""
    starts = (table == rows[0]).all(-1).nonzero().flatten().tolist()
    return any(table[start : start + len(rows)].equal(rows) for start in starts)


def _rotation(*parts: Any) -> Rotation | None:
    """The cosines and sines of a row's angles; some models scale them, which isn't a rotation.

    Dimensions are paired by halves; `_rotates` fails for models that pair neighbors.
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
    """Whether a rotation turns a module's output, or its first part, into the queries."""
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
