"""Export of a run as a Hugging Face folder, which transformers loads."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.errors import UserError
from regard.files import write_file
from regard.huggingface.families import FAMILIES
from regard.huggingface.family import Family
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run, pack_tensors, saved_tensors


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
    ids = _special_ids(run)
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
    write_file(out / "generation_config.json", _json(ids | _forced(run)))
    write_file(out / "model.safetensors", pack_tensors(converted, {"format": "pt"}))
    write_file(out / "config.json", _json(config))
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
    reason = reasons.get(str(first)) or "; ".join(dict.fromkeys(reasons.values()))
    raise UserError(f"{run.path}: no Hugging Face model is like this: {reason}")


def _special_ids(run: Run) -> dict[str, Any]:
    """The special ids by transformers' names; null where there is none, as defaults differ."""
    special = run.tokenizer.special
    ids = {f"{role}_token_id": getattr(special, role) for role in ("pad", "bos", "eos")}
    if len(special.stop_ids) > 1:
        ids["eos_token_id"] = list(special.stop_ids)
    if isinstance(run.model, SequenceToSequence):
        ids["decoder_start_token_id"] = special.decoder_start_id
    return ids


def _forced(run: Run) -> dict[str, Any]:
    """The token that begins each target, as the template has it."""
    if not isinstance(run.model, SequenceToSequence):
        return {}
    prefix = run.template.target.prefix
    return {"forced_bos_token_id": prefix[0]} if len(prefix) == 1 else {}


def _json(table: dict[str, Any]) -> bytes:
    return json.dumps(table, indent=2).encode()
