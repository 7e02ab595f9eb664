"""Export of a run as a Hugging Face folder, which transformers loads."""

from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch

from regard.errors import UserError, alternatives
from regard.files import held_alone, new_folder, pack_tensors, require_new, to_json, write_file
from regard.huggingface.convert.families import FAMILIES
from regard.huggingface.convert.family import UNREADABLE, Family, Written
from regard.huggingface.convert.tokenizer import known_text
from regard.huggingface.post_processor import post_processor
from regard.models.head_config import MaskedLMHeadConfig
from regard.models.tensors import saved_tensors
from regard.runs.run import Run
from regard.runs.transformers_files import forced_ids, special_ids


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    model_type: str
    dropped: list[str]
    """Options that config.json can't hold; they matter only in training."""


def export_run(run: Run, out: Path, family: str | None = None) -> Exported:
    """Write config.json, generation_config.json, the weights and the tokenizer of a run.

    Weights have the dtype of the import, or else float32. `family` is a model_type; by default,
    that of the import, or the first with this architecture.

    Raises:
        UserError: no family of Hugging Face models has this architecture; or `out` exists.
    """
    require_new(out)
    chosen, written = _family(run, family)
    dtype = run.origin.get("dtype", "float32")
    tensors = chosen.save_weights(run.model, run.recipe.model)
    converted = {name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()}
    ids = special_ids(run.recipe, run.tokenizer)
    config = {
        "model_type": chosen.model_type,
        "architectures": [chosen.architecture],
        "vocab_size": chosen.vocabulary(saved_tensors(run.model)),
        "dtype": dtype,
        **ids,
        **written.fields,
    }
    # Texts of masked language models spell the mask.
    masked = isinstance(run.recipe.head, MaskedLMHeadConfig)
    generation = ids | forced_ids(run.recipe, run.tokenizer)
    with held_alone(out), new_folder(out) as folder:
        run.tokenizer.save(folder, split_special_tokens=not masked)
        if not _adds_the_same_ids(run):
            native = _with_ids_around(run)
            write_file(folder / "tokenizer.json", native.to_str(pretty=True).encode())
        write_file(folder / "generation_config.json", to_json(generation))
        write_file(folder / "model.safetensors", pack_tensors(converted, {"format": "pt"}))
        write_file(folder / "config.json", to_json(config))
    return Exported(chosen.model_type, written.dropped)


def _family(run: Run, name: str | None) -> tuple[Family, Written]:
    """Return a family, the named or the first fitting one, and the run's config.json."""
    if name is not None:
        return _named(run, name)
    first = run.origin.get("model_type")
    written = dict[str, Written]()
    for kind, family in sorted(FAMILIES.items(), key=lambda one: one[0] != first):
        if type(run.recipe.head) is not type(family.head):
            continue
        written[kind] = family.write_config(run.recipe.model)
        if not written[kind].differences:
            return family, written[kind]
    if not written:
        raise UserError(
            f"{run.path}: head.kind = {run.recipe.head.__struct_config__.tag!r}: only models with "
            "head lm or masked-lm can be exported"
        )
    nearest = min(written, key=lambda kind: _distance(written[kind]))
    reason, *others = written[nearest].differences.values()
    more = f", and {len(others)} more" if others else ""
    raise UserError(
        f"{run.path}: no Hugging Face model is like this; the nearest is {nearest}: {reason}{more}"
        f"; --family NAME lists all differences from one of {len(written)}"
    )


def _distance(found: Written) -> tuple[bool, int]:
    """Return a sort key: families of another kind last, then the number of differences."""
    return not found.differences.keys().isdisjoint({"kind", UNREADABLE}), len(found.differences)


def _named(run: Run, name: str) -> tuple[Family, Written]:
    """Return the named family, and the run's config.json in it."""
    if name not in FAMILIES:
        raise UserError(f"--family {name}: no such family; {alternatives(name, FAMILIES)}")
    family = FAMILIES[name]
    tags = [head.__struct_config__.tag for head in (run.recipe.head, family.head)]
    if tags[0] != tags[1]:
        raise UserError(f"{run.path}: head.kind = {tags[0]!r}: {name} models have {tags[1]!r}")
    found = family.write_config(run.recipe.model)
    if found.differences:
        raise UserError(f"{run.path}: isn't like {name}: {'; '.join(found.differences.values())}")
    return family, found


def _adds_the_same_ids(run: Run) -> bool:
    """Return whether the tokenizer's file adds the same ids around one text or two as the run."""
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
