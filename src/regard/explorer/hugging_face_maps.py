"""What a model of Hugging Face did with a text, as maps, and what stands around attention there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from regard.explorer.capture import Captured
from regard.explorer.hugging_face_capture import recorded_hugging_face
from regard.explorer.hugging_face_positions import positions_seen
from regard.explorer.hugging_face_projections import output_readers, projection
from regard.explorer.maps import Map, make_map


@torch.inference_mode()
def hugging_face_maps(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    source: Sequence[str],
    target: Sequence[str] = (),
    second: int | None = None,
) -> tuple[Map, ...]:
    """The attention of a model to one row, by kind, in the order in which it was first seen.

    `target` is empty where a model reads one text.

    Raises:
        MismatchError: weights · values isn't what the kernel gave: the picture would be wrong.
        UserError: the attention of such models can't be replaced by name.
    """
    with (
        recorded_hugging_face(model) as captured,
        output_readers(model, captured) as readers,
        positions_seen(model, captured) as positions,
    ):
        model(**inputs)
    kinds: dict[str, list[Captured]] = {}
    for one in captured:
        kinds.setdefault(kind_of(one.layer, bool(target)), []).append(one)
    maps = []
    for kind, found in kinds.items():
        made = make_map(kind, found, source, target, second)
        layers = [replace(x, projection=projection(readers, x.captured)) for x in made.layers]
        tables = [path for path in positions.vectors if kind_of(path, bool(target)) == kind]
        maps.append(replace(made, layers=tuple(layers), encoding=positions.of(found, tables)))
    return tuple(maps)


def kind_of(path: str, has_target: bool) -> str:
    """What a layer looks at, or a table is for, by the names that transformers has."""
    if not has_target:
        return "self-attention"
    if re.search(r"cross|encdec|encoder_attn", path, re.IGNORECASE):
        return "decoder to source"
    outermost = re.search(r"\b(encoder|decoder)\b", path)
    return outermost[1] if outermost else "decoder"
