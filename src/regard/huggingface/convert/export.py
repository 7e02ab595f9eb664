"""Export of a run as a Hugging Face folder, which transformers loads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch

from regard.errors import UserError
from regard.files import pack_tensors, to_json, write_file
from regard.huggingface.convert.families import FAMILIES
from regard.huggingface.convert.family import Family
from regard.huggingface.convert.tokenizer import known_text
from regard.huggingface.post_processor import post_processor
from regard.models.builders import saved_tensors
from regard.runs.run import Run
from regard.runs.transformers_files import forced_ids, special_ids

SHOWN = 3
"""Reasons against an export that the error lists."""


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    model_type: str
    dropped: list[str]
    """Options that config.json can't hold; they matter in training alone."""


def export_run(run: Run, out: Path) -> Exported:
    """Write config.json, generation_config.json, the weights and the tokenizer of a run.

    Weights have the type that they were imported in, or else float32.

    Raises:
        UserError: no family of Hugging Face models has this architecture; or `out` exists.
    """
    if out.exists():
        raise UserError(f"{out}: exists; choose another --out")
    family, fields, dropped = _family(run)
    dtype = run.origin.get("dtype", "float32")
    tensors = family.save_weights(run.model, run.recipe.model)
    converted = {name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()}
    ids = special_ids(run.recipe, run.tokenizer)
    config = {
        "model_type": family.model_type,
        "architectures": [family.architecture],
        "vocab_size": family.vocabulary(saved_tensors(run.model)),
        "dtype": dtype,
        **ids,
        **fields,
    }
    out.mkdir(parents=True)
    run.tokenizer.save(out)
    if not _adds_the_same_ids(run):
        write_file(out / "tokenizer.json", _with_ids_around(run).to_str(pretty=True).encode())
    write_file(out / "generation_config.json", to_json(ids | forced_ids(run.recipe, run.tokenizer)))
    write_file(out / "model.safetensors", pack_tensors(converted, {"format": "pt"}))
    write_file(out / "config.json", to_json(config))
    return Exported(family.model_type, dropped)


def _family(run: Run) -> tuple[Family, dict[str, Any], list[str]]:
    """The family of a run, and what its config.json holds and lacks."""
    first = run.origin.get("model_type")
    reasons = dict[str, str]()
    for family in sorted(FAMILIES.values(), key=lambda family: family.model_type != first):
        if type(run.recipe.head) is not type(family.head):
            continue
        try:
            return family, *family.write_config(run.recipe.model)
        except UserError as error:
            reasons[family.model_type] = str(error)
    if not reasons:
        raise UserError(
            f"{run.path}: head.kind = {run.recipe.head.__struct_config__.tag!r}: only models with "
            "head lm or masked-lm can be exported"
        )
    some = list(dict.fromkeys(reasons.values()))[:SHOWN]
    reason = reasons.get(str(first)) or "; ".join(some)
    raise UserError(f"{run.path}: no Hugging Face model is like this: {reason}")


def _adds_the_same_ids(run: Run) -> bool:
    """Whether the tokenizer's own file puts around a text, or two, what the run does."""
    text, _ = known_text(run.tokenizer)
    native = run.tokenizer.native
    alone = native.encode(text).ids == run.encode(text)[0]
    paired = run.recipe.uses_token_types
    return alone and (not paired or native.encode(text, text).ids == run.encode(text, text)[0])


def _with_ids_around(run: Run) -> tokenizers.Tokenizer:
    """Return a copy of the tokenizer that puts the run's ids around each text."""
    native = tokenizers.Tokenizer.from_str(run.tokenizer.native.to_str())
    native.post_processor = post_processor(run.template, run.text_affixes)
    return native
